
#line 4 "replay.cpp"
// Appended to a kernel that runs in a process of its own: reads a launch with its buffers from a file, gives every
// buffer its own allocation, so that a sanitizer sees its bounds, and writes the buffers back. See buffers.py.
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace replay {

struct Buffer {
    uint64_t address, size;  // in the process that asked
    unsigned char* copy;     // here
    bool is_table;           // nothing but addresses of known buffers
};

struct Problem {
    emu::Launch launch;
    std::vector<unsigned char> params;
    std::vector<uint64_t> pointers;  // offsets in `params`
    std::vector<Buffer> buffers;
};

[[noreturn]] inline void give_up(const char* what) {
    std::perror(what);
    std::exit(2);
}

inline void read_exactly(std::FILE* file, void* to, size_t bytes) {
    if (bytes && std::fread(to, bytes, 1, file) != 1) give_up("cannot read the launch");
}

inline Problem read_problem(const char* name) {
    std::FILE* file = std::fopen(name, "rb");
    if (!file) give_up(name);
    uint64_t counts[3];
    Problem problem;
    read_exactly(file, counts, sizeof counts);
    read_exactly(file, &problem.launch, sizeof problem.launch);
    problem.params.resize(counts[0]);
    problem.pointers.resize(counts[1]);
    problem.buffers.resize(counts[2]);
    read_exactly(file, problem.pointers.data(), counts[1] * 8);
    read_exactly(file, problem.params.data(), counts[0]);
    for (Buffer& buffer : problem.buffers) {
        void* memory = nullptr;
        read_exactly(file, &buffer, 16);
        if (posix_memalign(&memory, 64, buffer.size)) give_up("no memory for a buffer");
        buffer.copy = static_cast<unsigned char*>(memory);
        read_exactly(file, buffer.copy, buffer.size);
    }
    std::fclose(file);
    return problem;
}

// The same place in the copy (`back`: in the asking process); 0 for what is in no known buffer.
inline uint64_t moved(const std::vector<Buffer>& buffers, uint64_t address, bool back) {
    for (const Buffer& buffer : buffers) {
        const uint64_t copy = reinterpret_cast<uint64_t>(buffer.copy);
        const uint64_t from = back ? copy : buffer.address, to = back ? buffer.address : copy;
        if (address >= from && address < from + buffer.size) return to + (address - from);
    }
    return 0;
}

inline void move_word(const std::vector<Buffer>& buffers, unsigned char* word, bool back) {
    uint64_t address;
    __builtin_memcpy(&address, word, 8);
    address = moved(buffers, address, back);
    __builtin_memcpy(word, &address, 8);
}

inline bool holds_addresses(const std::vector<Buffer>& buffers, const Buffer& one) {
    for (uint64_t at = 0, word; at + 8 <= one.size; at += 8) {
        __builtin_memcpy(&word, one.copy + at, 8);
        if (!moved(buffers, word, false)) return false;
    }
    return one.size % 8 == 0;
}

inline void move_tables(const std::vector<Buffer>& buffers, bool back) {
    for (const Buffer& one : buffers)
        for (uint64_t at = 0; one.is_table && at < one.size; at += 8) move_word(buffers, one.copy + at, back);
}

inline void write_result(const char* name, const std::vector<Buffer>& buffers) {
    std::FILE* file = std::fopen(name, "wb");
    if (!file) give_up(name);
    for (const Buffer& one : buffers)
        if (std::fwrite(one.copy, one.size, 1, file) != 1) give_up("cannot write the result");
    if (std::fclose(file)) give_up("cannot write the result");
}

}  // namespace replay

int main(int, char** names) {
    replay::Problem problem = replay::read_problem(names[1]);
    std::vector<replay::Buffer>& buffers = problem.buffers;
    for (replay::Buffer& one : buffers) one.is_table = replay::holds_addresses(buffers, one);
    replay::move_tables(buffers, false);
    for (const uint64_t at : problem.pointers) replay::move_word(buffers, problem.params.data() + at, false);
    char message[4096];
    if (emulate(&problem.launch, problem.params.data(), message, sizeof message)) {
        std::fprintf(stderr, "%s\n", message);
        return 3;
    }
    replay::move_tables(buffers, true);
    replay::write_result(names[2], buffers);
}

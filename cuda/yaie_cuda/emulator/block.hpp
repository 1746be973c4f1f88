// The state of one running block: its fibers, warps, barriers and memory. One system thread owns it.
#pragma once
#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "context.hpp"
#include "runtime.hpp"
#include "sanitizers.hpp"

namespace emu {

inline constexpr size_t page = 4096;
inline constexpr size_t stack_bytes = (address_sanitizer || thread_sanitizer) ? 256 << 10 : 64 << 10;
inline constexpr size_t most_shared = 232448;  // 227 KiB, the largest block of sm_90
inline constexpr size_t shared_span = (most_shared + page - 1) / page * page + 2 * page;
inline constexpr unsigned warp_lanes = 32, most_warps = 32, most_barriers = 16;
inline constexpr unsigned most_race_fibers = 6000;  // ThreadSanitizer has room for 8128 threads
inline constexpr unsigned most_copies = 512, most_groups = 64;

enum class State : uint8_t { ready, in_collective, at_barrier, ended };

// A copy that has been started: the hardware may do it at any time up to the wait.
struct Copy {
    void* to;
    const void* from;
    bool valid;
    void* pc;
    Where at;
};

struct Fiber {
    Thread thread;
    Context context;
    State state;
    const char* operation;
    Where at;
    unsigned warp, linear;
    unsigned char* stack;
    void* fake_stack;
    void* race;
    // In the order of their start, and where each committed group ends. Arrays, because an allocator called from many
    // fibers would be reported as a race.
    Copy copies[most_copies];
    unsigned groups[most_groups];
    unsigned copies_begun, copies_done, groups_begun, groups_done;
};

// What a lane brings to a collective, and what it takes away. The last lane to arrive works for all.
struct Lane {
    alignas(16) uint32_t given[8];
    alignas(16) uint32_t taken[4];
    unsigned source;
};

// Lanes on their way to one collective; filed under the lowest lane of its mask.
struct Group {
    uint32_t mask, arrived;
    unsigned turn;
    const char* operation;
    Where at;
    char order[2];
};

struct Warp {
    Lane lanes[warp_lanes];
    Group groups[warp_lanes];
    uint32_t live, ready, pending;
};

struct Barrier {
    uint32_t waiting[most_warps];
    unsigned count, threads, turn;
    Where at;
    char order[2];
};

// What all blocks of a launch share.
struct Run {
    const Launch& what;
    Body body;
    const void* params;
    uint64_t blocks;
    std::atomic<uint64_t> next_block{0};
    std::atomic<bool> failed{false};
    std::string reason{};
    char order = 0, done = 0;  // what is before all fibers, and after them
    std::mutex workers_lock{};
    std::vector<pthread_t> workers{};  // the system threads that take its blocks now
};

struct Block {
    Run* run = nullptr;
    Shape shape{};
    unsigned threads = 0, warps = 0, ended = 0;
    Fiber* fibers = nullptr;
    Warp warp[most_warps];
    unsigned capacity = 0;
    Barrier barriers[most_barriers];
    Fiber* current = nullptr;
    Fiber host;
    const void* host_stack = nullptr;
    size_t host_stack_bytes = 0;
    unsigned char* stacks = nullptr;
    unsigned char* memory = nullptr;  // shared memory, with a guard page on both sides
    uint64_t random = 0;

    Block() = default;
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block() {
        if (stacks) munmap(stacks, capacity * stack_bytes);
        if (fibers) munmap(fibers, capacity * sizeof(Fiber));
        if (memory) munmap(memory, shared_span);
    }
    bool in_kernel() const { return current && current != &host; }
};

// The block that this system thread runs.
inline thread_local Block* running = nullptr;
inline Block& block() { return *running; }

// Leaves the running fiber for another one; fails when no fiber can go on.
void pass_on();
void become(Fiber& next);
void make_ready(Fiber& fiber);
[[noreturn]] void abandon(const std::string& reason);
std::string describe(Where at);

}  // namespace emu

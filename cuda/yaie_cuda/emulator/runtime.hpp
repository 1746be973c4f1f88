// What emulated kernels ask of the runtime: their place in the grid, meetings of a warp, barriers, late copies.
#pragma once
#include "types.hpp"

namespace emu {

// A place in a kernel's source; `here` as a default argument is the place of the call.
struct Where {
    const char* file;
    int line;
    static constexpr Where here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line};
    }
};

struct Shape {
    dim3 grid, block;
    uint3 block_index;
    unsigned char* shared;
};

struct Thread {
    uint3 index;
    unsigned lane;
    Shape* shape;
};

// The running thread. It never changes within a kernel's frame, hence `const`: the compiler may ask once.
Thread& self() __attribute__((const));

// Ends the launch with a message that names thread, block and place.
[[noreturn]] void fail(Where at, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Collectives of a warp: every lane of `mask` meets in the same call, then each gets its result.
enum class Reduction { add, min, max, min_signed, max_signed, bit_and, bit_or, bit_xor };
enum class Format { bfloat16, float16 };
void sync_warp(uint32_t mask, Where at);
uint64_t exchange(uint32_t mask, uint64_t value, unsigned source, const char* operation, Where at);
uint32_t ballot(uint32_t mask, bool predicate, const char* operation, Where at);
uint32_t reduce(uint32_t mask, uint32_t value, Reduction reduction, Where at);
void load_matrix(uint32_t (&result)[4], uint4 row, bool transposed, Where at);
void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Format format, Where at);

// Barrier 0 is the block's own; `threads` is how many meet at a named one.
void sync_block(Where at);
void sync_named(unsigned barrier, unsigned threads, Where at);
void fence();

// Asynchronous copies of 16 bytes, zeros where not `valid`.
void copy_begin(void* to, const void* from, bool valid, Where at);
void copy_commit();
void copy_wait(unsigned groups_left);

// A launch, as Python fills it in (see launcher.py).
enum class Schedule : uint32_t { round_robin, seeded, warp_ahead };
struct Launch {
    uint32_t grid[3];
    uint32_t threads, shared_bytes, os_threads;
    Schedule schedule;
    uint32_t eager_copies;
    uint64_t seed;
    uint64_t limit_ms;  // how long it may take; 0: for ever
};
using Body = void (*)(const void* params);

// Runs every block. Returns 0, or 1 with the reason in `message`.
int launch(const Launch& what, Body body, const void* params, char* message, size_t size);

}  // namespace emu

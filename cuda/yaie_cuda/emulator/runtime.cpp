// The runtime of emulated kernels. Every CUDA thread is a fiber; a system thread runs one block at a time. The lanes of
// a warp meet in collectives, where the last one to arrive does the work for all.
#include "block.hpp"
#include "collectives.hpp"
#include "copies.hpp"
#include "faults.hpp"
#include "schedule.hpp"
#include "workers.hpp"

namespace emu {

Thread& self() { return block().current->thread; }

std::string describe(Where at) { return std::string(at.file) + ":" + std::to_string(at.line); }

void make_ready(Fiber& fiber) {
    fiber.state = State::ready;
    block().warp[fiber.warp].ready |= 1u << fiber.thread.lane;
}

void become(Fiber& next) {
    Block& b = block();
    Fiber& from = *b.current;
    if (&from == &next) return;
    b.current = &next;
    const bool to_host = &next == &b.host, gone = from.state == State::ended;
    leave_stack(gone ? nullptr : &from.fake_stack, to_host ? b.host_stack : next.stack,
                to_host ? b.host_stack_bytes : stack_bytes);
    follow(next.race);
    switch_to(from.context, next.context);
    enter_stack(from.fake_stack, nullptr, nullptr);
}

void pass_on() {
    Block& b = block();
    if (Fiber* next = choose(b)) return become(*next);
    if (b.ended == b.threads) return become(b.host);
    fail(b.in_kernel() ? b.current->at : Where{"", 0}, "no thread can go on: %s", who_waits_where(b).c_str());
}

void abandon(const std::string& reason) {
    Block& b = block();
    if (!b.run->failed.exchange(true)) b.run->reason = reason;
    b.current->state = State::ended;
    become(b.host);
    __builtin_unreachable();
}

void fail(Where at, const char* format, ...) {
    Block& b = block();
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const uint3 t = b.current->thread.index, i = b.shape.block_index;
    char place[160];
    std::snprintf(place, sizeof place, "thread (%u,%u,%u) of block (%u,%u,%u)", t.x, t.y, t.z, i.x, i.y, i.z);
    abandon((*at.file ? describe(at) + ": " : "") + place + ": " + text);
}

void fence() {
    // Orders what comes before it in one thread before what comes after it in another.
    static char order;
    release(&order);
    acquire(&order);
}

int launch(const Launch& what, Body body, const void* params, char* message, size_t size) {
    Run run{what, body, params, uint64_t(what.grid[0]) * what.grid[1] * what.grid[2]};
    if (what.shared_bytes > most_shared)
        run.reason =
            std::to_string(what.shared_bytes) + " bytes of shared memory; a block has " + std::to_string(most_shared);
    else
        run_blocks(run);
    if (run.reason.empty()) return 0;
    std::snprintf(message, size, "%s", run.reason.c_str());
    return 1;
}

}  // namespace emu

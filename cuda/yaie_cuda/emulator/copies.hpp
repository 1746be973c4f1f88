// Asynchronous copies. A device may do one at any time between its start and the wait for it; the emulator does it at
// one of the two ends, so that both a missing wait and a missing barrier before reuse can be seen.
#pragma once
#include "block.hpp"

namespace emu {

inline void perform(const Copy& copy) {
    note_copy(copy.to, copy.from, copy.valid, copy.pc);
    *static_cast<uint4*>(copy.to) = copy.valid ? *static_cast<const uint4*>(copy.from) : uint4{};
}

__attribute__((noinline)) void copy_begin(void* to, const void* from, bool valid, Where at) {
    Block& b = block();
    Fiber& f = *b.current;
    f.at = at;
    if (out_of_bounds(to, 16)) fail(at, "cp_async_16 writes past its buffer, at %p", to);
    if (valid && out_of_bounds(from, 16)) fail(at, "cp_async_16 reads past its buffer, at %p", from);
    // For the race detector the copy happens at both ends: when it is started, and when it is waited for.
    note_copy(to, from, valid, __builtin_return_address(0));
    const Copy copy{to, from, valid, __builtin_return_address(0), at};
    if (b.run->what.eager_copies) return perform(copy);
    if (f.copies_begun == most_copies)
        fail(at, "cp_async_16: more than %u copies in flight in one thread", most_copies);
    f.copies[f.copies_begun++] = copy;
}

void copy_commit() {
    Fiber& f = *block().current;
    if (f.groups_begun == most_groups) fail(f.at, "cp_async_commit: more than %u groups in flight", most_groups);
    f.groups[f.groups_begun++] = f.copies_begun;
}

void copy_wait(unsigned groups_left) {
    Fiber& f = *block().current;
    while (f.groups_begun - f.groups_done > groups_left) {
        const unsigned end = f.groups[f.groups_done++];
        while (f.copies_done < end) perform(f.copies[f.copies_done++]);
    }
    // What is still in flight moves to the front.
    f.copies_begun -= f.copies_done;
    f.groups_begun -= f.groups_done;
    std::memmove(f.copies, f.copies + f.copies_done, f.copies_begun * sizeof(Copy));
    for (unsigned i = 0; i < f.groups_begun; ++i) f.groups[i] = f.groups[i + f.groups_done] - f.copies_done;
    f.copies_done = f.groups_done = 0;
}

}  // namespace emu

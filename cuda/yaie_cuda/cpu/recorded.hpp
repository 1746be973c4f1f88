// Calls that were recorded, run again one after another: arguments lie in slots of eight bytes each.
#pragma once

#include <cstring>
#include <utility>

#include "vectors.hpp"

namespace cpu {

using Slot = std::uint64_t;

struct Recorded {
    int (*run)(const Slot*);
    const Slot* arguments;
};

template <class A>
A argument(const Slot& slot) {
    static_assert(sizeof(A) <= sizeof(Slot));
    A value;
    std::memcpy(&value, &slot, sizeof value);  // the low bytes: all machines that this is built for are little-endian
    return value;
}

template <class... A, std::size_t... I>
int apply(int (*function)(A...), const Slot* slots, std::index_sequence<I...>) {
    return function(argument<A>(slots[I])...);
}

// Calls `function` with what `slots` hold.
template <class... A>
int apply(int (*function)(A...), const Slot* slots) {
    return apply(function, slots, std::index_sequence_for<A...>{});
}

}  // namespace cpu

// What the sanitizers must be told: which stack runs, which barriers order memory, what is out of bounds.
// The runtime itself is built without ThreadSanitizer: only the kernel's own accesses are the program under test.
#pragma once
#include <cstddef>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef EMU_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
extern "C" void __tsan_read16_pc(void* address, void* pc);
extern "C" void __tsan_write16_pc(void* address, void* pc);
#endif

namespace emu {

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool address_sanitizer = true;
inline void poison(void* from, size_t bytes) { __asan_poison_memory_region(from, bytes); }
inline void unpoison(void* from, size_t bytes) { __asan_unpoison_memory_region(from, bytes); }
inline bool out_of_bounds(const void* from, size_t bytes) {
    return __asan_region_is_poisoned(const_cast<void*>(from), bytes) != nullptr;
}
inline void leave_stack(void** kept, const void* bottom, size_t size) {
    __sanitizer_start_switch_fiber(kept, bottom, size);
}
inline void enter_stack(void* kept, const void** bottom, size_t* size) {
    __sanitizer_finish_switch_fiber(kept, bottom, size);
}
#else
inline constexpr bool address_sanitizer = false;
inline void poison(void*, size_t) {}
inline void unpoison(void*, size_t) {}
inline bool out_of_bounds(const void*, size_t) { return false; }
inline void leave_stack(void**, const void*, size_t) {}
inline void enter_stack(void*, const void**, size_t*) {}
#endif

#ifdef EMU_THREAD_SANITIZER
inline constexpr bool thread_sanitizer = true;
inline void* race_fiber() { return __tsan_create_fiber(0); }
inline void* race_host() { return __tsan_get_current_fiber(); }
inline void end_race_fiber(void* fiber) { __tsan_destroy_fiber(fiber); }
inline void follow(void* fiber) { __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync); }
inline void release(void* object) { __tsan_release(object); }
inline void acquire(void* object) { __tsan_acquire(object); }
// A copy of 16 bytes, reported at `pc`, the place where it was started.
inline void note_copy(void* to, const void* from, bool reads, void* pc) {
    if (reads) __tsan_read16_pc(const_cast<void*>(from), pc);
    __tsan_write16_pc(to, pc);
}
#else
inline constexpr bool thread_sanitizer = false;
inline void* race_fiber() { return nullptr; }
inline void* race_host() { return nullptr; }
inline void end_race_fiber(void*) {}
inline void follow(void*) {}
inline void release(void*) {}
inline void acquire(void*) {}
inline void note_copy(void*, const void*, bool, void*) {}
#endif

}  // namespace emu

// The best number of each row and where it is.
#pragma once

#include "rows.hpp"

namespace cpu {

// Whether a number that comes later takes the place of one: NaN is better than any number.
inline bool better(float later, float now) { return now == now && !(later <= now); }

// The first NaN, else the first of the largest of `count` numbers, which are at least one. Four vectors of lanes each keep
// the best of theirs, so that one need not wait for the other.
template <class T>
Int best_of(const T* numbers, Int count) {
    constexpr Int WIDTH = 4 * LANES;
    const Int whole = count / WIDTH * WIDTH;
    Int found = 0;
    if (whole > 0) {
        Floats best[4];
        Words round[4] = {};  // in which each lane found its best
        for (int c = 0; c < 4; ++c) best[c] = load(numbers + c * LANES);
        for (Int i = WIDTH; i < whole; i += WIDTH)
            for (int c = 0; c < 4; ++c) {
                const Floats values = load(numbers + i + c * LANES);
                const auto kept = (values <= best[c]) | (best[c] != best[c]);
                round[c] = kept ? round[c] : static_cast<std::uint32_t>(i / WIDTH) - Words{};
                best[c] = kept ? best[c] : values;
            }
        found = count;
        float top = 0.0f;
        for (int c = 0; c < 4; ++c)
            for (Int lane = 0; lane < LANES; ++lane) {
                const Int place = round[c][lane] * WIDTH + c * LANES + lane;
                const float value = best[c][lane];
                const bool equal = value == top || (value != value && top != top);
                if (found == count || better(value, top) || (equal && place < found)) found = place, top = value;
            }
    }
    for (Int i = whole; i < count; ++i)
        if (better(widened(numbers[i]), widened(numbers[found]))) found = i;
    return found;
}

template <class T>
void best_of_rows(const T* rows, Int stride, T* best, Int* ids, Int count, Int width, int threads) {
#pragma omp parallel for num_threads(threads) if (count * width > ALONE && count > 1)
    for (Int row = 0; row < count; ++row) {
        ids[row] = best_of(rows + row * stride, width);
        best[row] = rows[row * stride + ids[row]];
    }
}

}  // namespace cpu

// Which decodes of a step begin with the same blocks. Their tables tell, so a step that was recorded finds it anew, and
// nothing has to be kept in step with the radix tree.
#pragma once

#include <algorithm>
#include <vector>

#include "attention.hpp"

namespace cpu {

// `count` sequences from `place` on in the order of `Prefixes`, and how many first tokens they share.
struct Prefix {
    Int place, count, tokens;
};

// Of prefixes inside of each other the level is taken at which most (row, token) pairs are shared, among those that are
// worth it.
class Prefixes {
public:
    std::vector<Int> order;     // all sequences; those that begin alike stand beside each other
    std::vector<Prefix> found;  // by place

    // `worth(count, tokens)` says whether so many sequences gain by attending so many tokens together.
    template <class T, class Worth>
    void find(const Decode<T>& call, const Worth& worth) {
        const auto blocks = [&](Int seq) {  // that may be shared: before the block of the last token, and wholly seen
            return call.first(seq) > 0 ? 0 : std::max<Int>(0, call.contexts[seq] - 1) / call.keys.block_size;
        };
        const auto table = [&](Int seq) { return call.tables + seq * call.table_stride; };
        order.resize(call.num_seqs);
        common.assign(call.num_seqs, 0);
        found.clear();
        for (Int seq = 0; seq < call.num_seqs; ++seq) order[seq] = seq;
        std::sort(order.begin(), order.end(), [&](Int a, Int b) {
            const std::int32_t *x = table(a), *y = table(b);
            const Int both = std::min(blocks(a), blocks(b)), same = std::mismatch(x, x + both, y).first - x;
            if (same < both) return x[same] < y[same];
            return blocks(a) != blocks(b) ? blocks(a) < blocks(b) : a < b;
        });
        for (Int place = 1; place < call.num_seqs; ++place) {
            const Int a = order[place - 1], b = order[place], both = std::min(blocks(a), blocks(b));
            common[place] = (std::mismatch(table(a), table(a) + both, table(b)).first - table(a)) * call.keys.block_size;
        }
        take(0, call.num_seqs, worth);
    }

private:
    std::vector<Int> common;  // tokens that order[i - 1] and order[i] begin with

    // The prefixes among places [start, stop); how many pairs need not be attended.
    template <class Worth>
    Int take(Int start, Int stop, const Worth& worth) {
        if (stop - start < 2) return 0;
        const Int least = *std::min_element(common.begin() + start + 1, common.begin() + stop);
        const std::size_t before = found.size();
        Int deeper = 0, from = start;
        for (Int place = start + 1; place <= stop; ++place)
            if (place == stop || common[place] == least) {
                deeper += take(from, place, worth);
                from = place;
            }
        const Int together = worth(stop - start, least) ? (stop - start - 1) * least : 0;
        if (together == 0 || together < deeper) return deeper;
        found.resize(before);
        found.push_back({start, stop - start, least});
        return together;
    }
};

}  // namespace cpu

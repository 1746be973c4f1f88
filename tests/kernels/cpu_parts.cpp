// How the decodes of a step are shared out. Reads num_seqs, width, block_size, window, kv_heads, group, threads, then a
// context and a table for each sequence; prints every part as "head stop_head start stop number" with its sequences, then how many parts lie before each sequence.

#include <iostream>

#include "decode.hpp"

using cpu::Int;

int main() {
    Int seqs, width, size, window, kv_heads, group, threads;
    std::cin >> seqs >> width >> size >> window >> kv_heads >> group >> threads;
    std::vector<std::int32_t> contexts(seqs), tables(seqs * width);
    for (Int seq = 0; seq < seqs; ++seq) {
        std::cin >> contexts[seq];
        for (Int i = 0; i < width; ++i) std::cin >> tables[seq * width + i];
    }
    const cpu::Cache<const float> none{nullptr, 0, size};
    const cpu::Decode<float> call{nullptr, 0, none, none, tables.data(), width, contexts.data(), 1, 0, window, nullptr,
                                  false, nullptr, seqs, kv_heads * group, kv_heads, 16, 16};
    cpu::Parts parts;
    parts.find(call, static_cast<int>(threads));
    for (const cpu::Part& part : parts.all) {
        std::cout << part.head << ' ' << part.stop_head << ' ' << part.start << ' ' << part.stop << ' ' << part.number;
        for (Int i = 0; i < part.count; ++i) std::cout << ' ' << parts.prefixes.order[part.place + i];
        std::cout << '\n';
    }
    for (const Int begin : parts.begins) std::cout << begin << ' ';
}

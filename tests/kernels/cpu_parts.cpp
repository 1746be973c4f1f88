// How the decodes of a step are shared out. Reads the type (float32, bfloat16), num_seqs, width, block_size, window,
// kv_heads, group, threads, then a context and a table for each sequence. Prints from how many sequences on a prefix
// counts; every part as "head stop_head start stop number" with its sequences; how many parts lie before each sequence.

#include <iostream>
#include <string>

#include "decode.hpp"

using cpu::Int;

template <class T>
void share_out() {
    Int seqs, width, size, window, kv_heads, group, threads;
    std::cin >> seqs >> width >> size >> window >> kv_heads >> group >> threads;
    std::vector<std::int32_t> contexts(seqs), tables(seqs * width);
    for (Int seq = 0; seq < seqs; ++seq) {
        std::cin >> contexts[seq];
        for (Int i = 0; i < width; ++i) std::cin >> tables[seq * width + i];
    }
    const cpu::Cache<const T> none{nullptr, 0, size};
    const cpu::Decode<T> call{nullptr, 0, none, none, tables.data(), width, contexts.data(), 1, 0, window, nullptr,
                                  false, nullptr, seqs, kv_heads * group, kv_heads, 16, 16};
    std::cout << cpu::fewest<T>(group) << '\n';
    cpu::Parts parts;
    parts.find(call, static_cast<int>(threads));
    for (const cpu::Part& part : parts.all) {
        std::cout << part.head << ' ' << part.stop_head << ' ' << part.start << ' ' << part.stop << ' ' << part.number;
        for (Int i = 0; i < part.count; ++i) std::cout << ' ' << parts.prefixes.order[part.place + i];
        std::cout << '\n';
    }
    for (const Int begin : parts.begins) std::cout << begin << ' ';
}

int main() {
    std::string type;
    std::cin >> type;
    if (type == "float32")
        share_out<float>();
    else
        share_out<cpu::bfloat16>();
}

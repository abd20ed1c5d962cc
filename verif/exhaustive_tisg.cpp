// Every pair of the scores and weights on standard input through the Verilog of one score adder.
//
// Input: two 32-bit counts, that many 32-bit scores, that many 16-bit weights. Output per score:
// the 32-bit sums of all weights, then one byte each for `bad`. All little-endian.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "Vadder.h"

template <typename T>
static std::vector<T> read(std::size_t count) {
    std::vector<T> values(count);
    if (std::fread(values.data(), sizeof(T), count, stdin) != count) {
        std::fputs("Input is too short\n", stderr);
        std::exit(1);
    }
    return values;
}

template <typename T>
static void write(const std::vector<T>& values) {
    if (std::fwrite(values.data(), sizeof(T), values.size(), stdout) != values.size()) {
        std::fputs("Output is closed\n", stderr);
        std::exit(1);
    }
}

int main() {
    const auto counts = read<std::uint32_t>(2);
    const auto scores = read<std::uint32_t>(counts[0]);
    const auto weights = read<std::uint16_t>(counts[1]);
    std::vector<std::uint32_t> sums(weights.size());
    std::vector<std::uint8_t> bad(weights.size());
    Vadder adder;
    adder.enable = 1;
    for (const auto score : scores) {
        adder.score = score;
        for (std::size_t i = 0; i < weights.size(); ++i) {
            adder.p = weights[i];
            adder.eval();
            sums[i] = adder.sum;
            bad[i] = adder.bad;
        }
        write(sums);
        write(bad);
    }
}

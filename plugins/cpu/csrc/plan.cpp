#include "plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "refine.h"

namespace octavo {

namespace {
constexpr int kLogitTiles = 8;  // tiles whose logits are looked at while they are in the first-level cache
}

void Model::finish() {
    taken_ = std::make_unique<std::atomic<int>[]>(steps.size());
    int feeder[3] = {-1, -1, -1};  // the last step that fed each kind
    for (size_t i = 0; i < steps.size(); ++i) {
        Step& step = steps[i];
        whole_rows_ = whole_rows_ || step.op == Op::Pool || step.bidirectional;
        if (step.op == Op::Pooled) pooled_width_ = step.width;
        if (step.logits) scored_ = step.domain;
        if (step.feed != Feed::None) {
            feeder[int(step.feed)] = int(i);
            step.repeatable = step.out[0] < 0 && i + 1 < steps.size() && steps[i + 1].op == Op::Linear;
        }
        if (step.op == Op::Linear) {
            const Packing packing = matrices[size_t(step.matrices[0])].packing;
            const Feed kind = packing == Packing::Bf16 ? Feed::Bf16 : quantized(packing) ? Feed::Int8 : Feed::None;
            step.private_feed = kind != Feed::None && feeder[int(kind)] >= 0 && steps[size_t(feeder[int(kind)])].repeatable;
        }
    }
    for (size_t i = steps.size(); i-- > 0;) {
        const Step& step = steps[i];
        const bool by_itself = step.domain == Domain::Tokens && !step.logits && step.op != Op::Attention && step.op != Op::TakeRows;
        const bool goes_on = by_itself && i + 1 < steps.size() && steps[i + 1].run_end > int(i) + 1;
        steps[i].run_end = goes_on ? steps[i + 1].run_end : int(i) + by_itself;
    }
}

void Model::reserve(int tokens) {
    if (tokens <= reserved_) return;
    reserved_ = tokens;
    size_t total = 0;
    for (size_t b = 0; b < buffer_widths.size(); ++b) total += size_t(stride(int(b))) * size_t(tokens);
    arena_ = Pages(total * sizeof(float));
    buffers_.clear();
    float* at = arena_.as<float>();  // rows are 64-byte aligned: strides are multiples of 16 floats
    for (size_t b = 0; b < buffer_widths.size(); ++b) {
        buffers_.push_back(at);
        at += size_t(stride(int(b))) * size_t(tokens);
    }
    int widest = 32, head_dim = 64;
    for (const Matrix& matrix : matrices) widest = std::max(widest, (matrix.inputs + 31) / 32 * 32);
    for (const Step& step : steps) head_dim = std::max(head_dim, step.head_dim);
    widest_ = widest;
    blocks_ = Pages(blocks_bytes(widest, std::max(tokens, kBlockRows)));
    bf16_.resize(size_t(widest) * size_t(tokens));
    const size_t few = blocks_bytes(widest, kFewRows), workers = size_t(pool_->threads());
    private_pages_ = Pages(few * workers);
    private_bf16_.assign(workers, std::vector<uint16_t>(size_t(widest) * kFewRows));
    private_.clear();
    for (size_t worker = 0; worker < workers; ++worker)
        private_.push_back({private_pages_.as<uint8_t>() + worker * few, private_bf16_[worker].data(), widest, kFewRows});
    cosines_.resize(ropes.size());
    sines_.resize(ropes.size());
    for (size_t r = 0; r < ropes.size(); ++r) {
        cosines_[r].resize(size_t(tokens) * ropes[r].frequencies.size());
        sines_[r].resize(size_t(tokens) * ropes[r].frequencies.size());
    }
    int widest_buffer = 0;
    for (int width : buffer_widths) widest_buffer = std::max(widest_buffer, (width + 15) / 16 * 16);
    const size_t scratch = size_t(std::max({attention_scratch(head_dim) + 2 * kVectors * partial_stride(head_dim), 2 * widest_buffer, kLogitTiles * kTile * tokens}));
    scratch_.assign(size_t(pool_->threads()), std::vector<float>(scratch));
    ones_.assign(size_t(widest_buffer), 1.0f);
    bests_.assign(size_t(pool_->threads()), std::vector<Best>(size_t(tokens)));
}

void Model::run(const StepArrays& arrays, KVStore& kv, const Results& to) {
    for (int c = 0; c < arrays.copies_count; ++c) kv.copy_block(arrays.copies[2 * c], arrays.copies[2 * c + 1]);
    const bool ordered = std::is_sorted(arrays.sample_rows, arrays.sample_rows + arrays.samples);
    if (arrays.tokens_count <= kPieceTokens || !ordered) return run_piece(arrays, kv, to);
    if (whole_rows_) return run_whole_rows(arrays, kv, to);
    // A piece is a step of its own: of each row the tokens that fall into it, over the context up to them.
    std::vector<int32_t> starts(size_t(arrays.rows) + 1), contexts(size_t(arrays.rows)), samples;
    int sampled = 0;
    for (int first = 0; first < arrays.tokens_count; first += kPieceTokens) {
        const int last = std::min(first + kPieceTokens, arrays.tokens_count);
        for (int r = 0; r <= arrays.rows; ++r) starts[size_t(r)] = std::clamp(arrays.query_starts[r], first, last) - first;
        for (int r = 0; r < arrays.rows; ++r)
            contexts[size_t(r)] = arrays.context_lens[r] - std::max(0, arrays.query_starts[r + 1] - last);
        samples.clear();
        for (int s = sampled; s < arrays.samples && arrays.sample_rows[s] < last; ++s) samples.push_back(arrays.sample_rows[s] - first);
        StepArrays piece = arrays;
        piece.tokens_count = last - first;
        piece.tokens += first;
        piece.positions += first;
        piece.slots += first;
        piece.query_starts = starts.data();
        piece.context_lens = contexts.data();
        piece.samples = int(samples.size());
        piece.sample_rows = samples.data();
        run_piece(piece, kv, {to.logits ? to.logits + size_t(sampled) * size_t(vocab) : nullptr, to.best ? to.best + sampled : nullptr, nullptr});
        sampled += piece.samples;
    }
}

void Model::run_piece(const StepArrays& arrays, KVStore& kv, const Results& to) {
    reserve(std::max({arrays.tokens_count, arrays.samples, whole_rows_ ? arrays.rows : 0}));
    reserve_partials(arrays);
    reserve_shared(kv);
    for (size_t i = 0; i < steps.size(); ++i) taken_[i].store(0, std::memory_order_relaxed);
    pool_->run([&](int worker) { work(worker, arrays, kv, to); });
}

int Model::rows_of(const Step& step, const StepArrays& arrays) const {
    return step.domain == Domain::Tokens ? arrays.tokens_count : step.domain == Domain::Samples ? arrays.samples : arrays.rows;
}

void Model::work(int worker, const StepArrays& arrays, KVStore& kv, const Results& to) {
    if (clock_) clock_->start(worker);
    for (size_t r = 0; r < ropes.size(); ++r) {
        const auto [first, last] = share(arrays.tokens_count, worker);
        const size_t half = ropes[r].frequencies.size();
        for (int t = first; t < last; ++t)
            for (size_t i = 0; i < half; ++i) {
                const double angle = double(arrays.positions[t]) * ropes[r].frequencies[i];
                cosines_[r][size_t(t) * half + i] = float(std::cos(angle));
                sines_[r][size_t(t) * half + i] = float(std::sin(angle));
            }
    }
    const bool many = arrays.tokens_count >= kManyTokens;
    if (many && !ropes.empty()) pool_->barrier().wait();  // a run turns tokens by angles that others have worked out
    if (clock_) clock_->charge(worker, steps.size(), StepClock::Working);
    for (size_t i = 0; i < steps.size(); ++i) {
        if (many && size_t(steps[i].run_end) > i + 1) {
            run_tokens(i, size_t(steps[i].run_end), worker, arrays, kv, to);
            i = size_t(steps[i].run_end) - 1;
            meet(steps[i], worker);
            continue;
        }
        execute(steps[i], worker, arrays, kv, to);
        if (!repeats(steps[i], rows_of(steps[i], arrays))) meet(steps[i], worker);
        else if (clock_) clock_->charge(worker, i, StepClock::Working);
    }
}

void Model::meet(const Step& step, int worker) {
    const size_t i = size_t(&step - steps.data());
    if (clock_) clock_->charge(worker, i, StepClock::Working);
    pool_->barrier().wait();
    if (clock_) clock_->charge(worker, i, StepClock::Waiting);
}

Model::Share Model::take(const Step& step, int count) {
    // Half of a worker's part of what is left: long pieces at first, so that weights stream, and short ones in the end, so that all are done
    // at the same time.
    std::atomic<int>& taken = taken_[size_t(&step - steps.data())];
    int first = taken.load(std::memory_order_relaxed), last;
    do {
        if (first >= count) return {count, count};
        last = first + std::max(1, (count - first) / (2 * pool_->threads()));
    } while (!taken.compare_exchange_weak(first, last, std::memory_order_relaxed));
    return {first, last};
}

Model::Share Model::share(int count, int worker) const {
    const int threads = pool_->threads();
    return {int(int64_t(count) * worker / threads), int(int64_t(count) * (worker + 1) / threads)};
}

void Model::feed(const Step& step, const float* values, int width, int row, const Activations& to) {
    if (step.feed == Feed::Int8) {
        kernels_->quantise(values, width, to, row);
        if (std::isfinite(step.refine)) refine(values, width, step.refine, to, row);
    } else if (step.feed == Feed::Bf16) kernels_->to_bf16(values, width, to.bf16 + size_t(row) * size_t(to.k));
}

void Model::execute(const Step& step, int worker, const StepArrays& arrays, KVStore& kv, const Results& to) {
    const int rows = rows_of(step, arrays);
    if (step.op == Op::Linear) return step.logits ? logits_or_best(step, worker, rows, to) : linear(step, worker, rows);
    if (step.op == Op::Attention) return attention(step, worker, arrays, kv);
    const bool repeated = repeats(step, rows);  // every worker does all rows, for itself
    if (repeated) {
        for (int r = 0; r < rows; ++r) execute_row(step, worker, r, true, arrays, kv, private_[size_t(worker)], to);
        return;
    }
    const Activations fed = activations(rows);
    const int runs = (rows + kRowsAtOnce - 1) / kRowsAtOnce;
    for (Share part = take(step, runs); part.first < part.last; part = take(step, runs))
        for (int r = part.first * kRowsAtOnce; r < std::min(part.last * kRowsAtOnce, rows); ++r) execute_row(step, worker, r, false, arrays, kv, fed, to);
}

void Model::run_tokens(size_t first, size_t last, int worker, const StepArrays& arrays, KVStore& kv, const Results& to) {
    const int tokens = arrays.tokens_count, pieces = (tokens + kRunTokens - 1) / kRunTokens;
    const Activations fed = activations(tokens);
    for (Share part = take(steps[first], pieces); part.first < part.last; part = take(steps[first], pieces))
        for (int piece = part.first; piece < part.last; ++piece) {
            const int begin = piece * kRunTokens, end = std::min(begin + kRunTokens, tokens);
            for (size_t i = first; i < last; ++i) {
                const Step& step = steps[i];
                if (step.op == Op::Linear)
                    for (int m = 0; m < step.count; ++m) multiply_rows(step, matrices[size_t(step.matrices[m])], step.out[m], begin, end, tokens);
                else
                    for (int r = begin; r < end; ++r) execute_row(step, worker, r, false, arrays, kv, fed, to);
                if (clock_) clock_->charge(worker, i, StepClock::Working);
            }
        }
}

void Model::execute_row(const Step& step, int worker, int r, bool repeated, const StepArrays& arrays, KVStore& kv, const Activations& fed, const Results& to) {
    const int width = step.width;
    float* const scratch = scratch_[size_t(worker)].data();
    switch (step.op) {
        case Op::Embed: {
            const Table& table = tables[size_t(step.vector)];
            dequantise_row(table.format, table.rows + size_t(step.table.of((step.table.positions ? arrays.positions : arrays.tokens)[r])) * table.row_bytes, table.columns, row(step.out[0], r));
            break;
        }
        case Op::RmsNorm: {
            float* y = step.out[0] >= 0 ? row(step.out[0], r) : scratch;
            float* sum = step.out[1] < 0 ? nullptr : repeated && worker != 0 ? scratch + (width + 15) / 16 * 16 : row(step.out[1], r);
            kernels_->rms_norm(row(step.in[0], r), step.in[1] >= 0 ? row(step.in[1], r) : nullptr, sum, vectors[size_t(step.vector)].data(),
                               width, step.run, step.eps, y);
            feed(step, y, width, r, fed);
            break;
        }
        case Op::Quantise: feed(step, row(step.in[0], r), width, r, fed); break;
        case Op::Rope: {
            const RopeTable& table = ropes[size_t(step.rope)];
            const size_t half = table.frequencies.size();
            const float* cosine = cosines_[size_t(step.rope)].data() + size_t(r) * half;
            const float* sine = sines_[size_t(step.rope)].data() + size_t(r) * half;
            kernels_->rope(row(step.in[0], r), step.heads, table.head_dim, table.turned, table.interleaved, cosine, sine);
            kernels_->rope(row(step.in[1], r), step.kv_heads, table.head_dim, table.turned, table.interleaved, cosine, sine);
            if (step.in[2] >= 0) write_kv(step, arrays, kv, r, row(step.in[1], r), row(step.in[2], r), scratch);
            break;
        }
        case Op::WriteKV: write_kv(step, arrays, kv, r, row(step.in[0], r), row(step.in[1], r), scratch); break;
        case Op::Gated: {
            float* y = step.out[0] >= 0 ? row(step.out[0], r) : scratch;
            kernels_->gated(row(step.in[0], r), step.in[1] >= 0 ? row(step.in[1], r) : ones_.data(), width, step.gate, y);
            feed(step, y, width, r, fed);
            break;
        }
        case Op::Add: {
            const float *a = row(step.in[0], r), *b = row(step.in[1], r);
            float* const y = row(step.out[0], r);
            for (int i = 0; i < width; ++i) y[i] = a[i] + b[i];
            break;
        }
        case Op::Mul:
            for (int i = 0; i < width; ++i) row(step.out[0], r)[i] = row(step.in[0], r)[i] * row(step.in[1], r)[i];
            break;
        case Op::Scale:
            for (int i = 0; i < width; ++i) row(step.out[0], r)[i] = row(step.in[0], r)[i] * step.scale;
            break;
        case Op::Softcap:
            for (int i = 0; i < width; ++i) row(step.out[0], r)[i] = step.softcap * std::tanh(row(step.in[0], r)[i] / step.softcap);
            break;
        case Op::TakeRows:
            std::memcpy(row(step.out[0], r), row(step.in[0], arrays.sample_rows[r]), size_t(width) * sizeof(float));
            break;
        case Op::Bias: {
            const float* const bias = vectors[size_t(step.vector)].data();
            float* const y = row(step.out[0], r);
            for (int i = 0; i < width; ++i) y[i] += bias[i];
            break;
        }
        case Op::LayerNorm:
        case Op::Pool:
        case Op::Pooled: encode_row(step, worker, r, arrays, fed, to); break;
        case Op::Linear:
        case Op::Attention: break;
    }
}

void Model::write_kv(const Step& step, const StepArrays& arrays, KVStore& kv, int token, const float* key, const float* value, float* scratch) {
    const int slot = arrays.slots[size_t(step.group) * size_t(arrays.slot_stride) + size_t(token)];
    if (slot >= 0) kv.write(*kernels_, step.slot, slot, key, value, reinterpret_cast<uint16_t*>(scratch));
}

// Tiles first … last-1 of one matrix for all rows of the step's input.
void Model::multiply(const Step& step, int worker, const Matrix& matrix, int first, int last, int rows, float* y, int ld) {
    const bool from_floats = matrix.packing == Packing::F16 || matrix.packing == Packing::F32;
    if (from_floats) return kernels_->matmul_float(matrix, first, last, row(step.in[0], 0), stride(step.in[0]), rows, y, ld);
    const bool from_own = step.private_feed && rows <= kFewRows;
    kernels_->matmul(matrix, first, last, from_own ? private_[size_t(worker)] : activations(rows), rows, y, ld);
}

// All of one matrix for rows first_row … last_row-1 of the step's `rows`; first_row begins a block.
void Model::multiply_rows(const Step& step, const Matrix& matrix, int out, int first_row, int last_row, int rows) {
    const int count = last_row - first_row, tiles = std::max(1, int(kRunBytes / matrix.tile_bytes));
    Activations x = activations(rows);
    x.blocks += size_t(first_row / x.height) * size_t(x.k / 32) * group_bytes(x.height);
    x.bf16 += size_t(first_row) * size_t(x.k);
    for (int tile = 0; tile < matrix.tiles; tile += tiles) {
        const int end = std::min(tile + tiles, matrix.tiles);
        if (matrix.packing == Packing::F16 || matrix.packing == Packing::F32)
            kernels_->matmul_float(matrix, tile, end, row(step.in[0], first_row), stride(step.in[0]), count, row(out, first_row), stride(out));
        else kernels_->matmul(matrix, tile, end, x, count, row(out, first_row), stride(out));
    }
}

// The tiles of all the step's matrices in one run, so that small ones do not end in a barrier each.
void Model::linear(const Step& step, int worker, int rows) {
    int total = 0;
    for (int i = 0; i < step.count; ++i) total += matrices[size_t(step.matrices[i])].tiles;
    for (Share part = take(step, total); part.first < part.last; part = take(step, total)) {
        int base = 0;
        for (int i = 0; i < step.count; ++i) {
            const Matrix& matrix = matrices[size_t(step.matrices[i])];
            const int from = std::max(part.first - base, 0), to = std::min(part.last - base, matrix.tiles);
            if (from < to) multiply(step, worker, matrix, from, to, rows, row(step.out[i], 0), stride(step.out[i]));
            base += matrix.tiles;
        }
    }
}

// The output matrix, a few tiles at a time: its logits are copied out or folded into each row's best, and never stored whole otherwise.
void Model::logits_or_best(const Step& step, int worker, int rows, const Results& to) {
    float* const logits = to.logits;
    Best* const best = to.best;
    const Matrix& matrix = matrices[size_t(step.matrices[0])];
    constexpr int ld = kLogitTiles * kTile;
    const float* const bias = step.vector < 0 ? nullptr : vectors[size_t(step.vector)].data();
    float* const piece = scratch_[size_t(worker)].data();
    std::vector<Best>& own = bests_[size_t(worker)];
    for (int r = 0; r < rows; ++r) own[size_t(r)] = {-std::numeric_limits<float>::infinity(), 0, false};
    for (Share part = take(step, matrix.tiles); part.first < part.last; part = take(step, matrix.tiles)) {
        for (int tile = part.first; tile < part.last; tile += kLogitTiles) {
            Matrix few = matrix;  // its first tile is `tile`, so that the results begin at column 0
            few.data += size_t(tile) * matrix.tile_bytes;
            const int count = std::min(kLogitTiles, part.last - tile), columns = std::min(count * kTile, vocab - tile * kTile);
            multiply(step, worker, few, 0, count, rows, piece, ld);
            for (int r = 0; r < rows; ++r) {
                float* const values = piece + size_t(r) * size_t(ld);
                if (bias)
                    for (int i = 0; i < columns; ++i) values[i] += bias[tile * kTile + i];
                if (step.softcap > 0.0f)
                    for (int i = 0; i < columns; ++i) values[i] = step.softcap * std::tanh(values[i] / step.softcap);
                if (logits) std::memcpy(logits + size_t(r) * size_t(vocab) + size_t(tile * kTile), values, size_t(columns) * sizeof(float));
                else kernels_->argmax(values, columns, tile * kTile, own[size_t(r)]);
            }
        }
    }
    meet(step, worker);
    if (worker != 0 || logits) return;
    for (int r = 0; r < rows; ++r) {
        best[r] = bests_[0][size_t(r)];
        for (int w = 1; w < pool_->threads(); ++w) {
            const Best& other = bests_[size_t(w)][size_t(r)];
            if (other.value > best[r].value || (other.value == best[r].value && other.index < best[r].index)) {
                best[r].value = other.value;
                best[r].index = other.index;
            }
            best[r].nan = best[r].nan || other.nan;
        }
    }
}

}  // namespace octavo

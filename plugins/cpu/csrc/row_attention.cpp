// The attention step: how its rows are cut into units, which worker takes which, and what units share or leave to be joined.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "plan.h"

namespace octavo {

AttentionUnit Model::attention_unit(const Step& step, const StepArrays& arrays, KVStore& kv, int r, int head, int slice, int first_query,
                                    int queries) {
    const int shared = step.heads / step.kv_heads, start = arrays.query_starts[r], count = arrays.query_starts[r + 1] - start;
    AttentionUnit unit{};
    unit.head_dim = step.head_dim;
    unit.block_size = kv.block_size;
    unit.scale = step.scale;
    unit.softcap = step.softcap;
    unit.has_sinks = step.vector >= 0;
    unit.table = arrays.tables + (size_t(step.group) * size_t(arrays.table_stride) + size_t(r)) * size_t(arrays.table_width);
    unit.format = kv.format;
    unit.keys = kv.keys(step.slot) + size_t(head) * kv.key_bytes();
    unit.values = kv.values(step.slot) + size_t(head) * kv.value_bytes();
    unit.block_stride = int64_t(kv.block_stride());
    for (int q = first_query; q < std::min(count, first_query + queries); ++q)
        for (int h = slice * kVectors; h < std::min(shared, (slice + 1) * kVectors); ++h) {
            const int v = unit.vectors++, column = (head * shared + h) * step.head_dim;
            unit.queries[v] = row(step.in[0], start + q) + column;
            unit.outputs[v] = row(step.out[0], start + q) + column;
            const int position = arrays.context_lens[r] - count + q;
            unit.positions[v] = step.bidirectional ? arrays.context_lens[r] - 1 : position;
            unit.first[v] = step.window > 0 ? std::max(0, position - step.window + 1) : 0;
            if (unit.has_sinks) unit.sinks[v] = vectors[size_t(step.vector)][size_t(head * shared + h)];
        }
    return unit;
}

namespace {

// Add what one chunk left of a query to what the chunks before it left.
void join_chunk(const float* chunk, int dim, float* sum) {
    const float peak = chunk[dim], total = chunk[dim + 1];
    float &sum_peak = sum[dim], &sum_total = sum[dim + 1];
    if (total == 0.0f) return;  // it sees nothing there
    if (sum_total == 0.0f) {
        std::memcpy(sum, chunk, size_t(dim + 2) * sizeof(float));
        return;
    }
    const float top = std::max(peak, sum_peak), shift = std::isinf(top) ? 0.0f : top;
    const float own = std::exp2(peak - shift), before = std::exp2(sum_peak - shift);
    for (int d = 0; d < dim; ++d) sum[d] = sum[d] * before + chunk[d] * own;
    sum_total = sum_total * before + total * own;
    sum_peak = top;
}

void clear_sum(int dim, float* sum) {
    std::fill(sum, sum + dim, 0.0f);
    sum[dim] = -std::numeric_limits<float>::infinity();
    sum[dim + 1] = 0.0f;
}

void write_output(const float* sum, int dim, float* out) {
    for (int d = 0; d < dim; ++d) out[d] = sum[d] / sum[dim + 1];
}

// The chunks that hold what a unit's queries see.
struct Chunks { int first, last; };
Chunks chunks_of(const AttentionUnit& unit) {
    return {*std::min_element(unit.first, unit.first + unit.vectors) / kContextChunk,
            *std::max_element(unit.positions, unit.positions + unit.vectors) / kContextChunk};
}

}  // namespace

// All of a unit by one worker, chunk after chunk.
void Model::attend_in_chunks(AttentionUnit& unit, int worker) {
    float* const scratch = scratch_[size_t(worker)].data();
    const auto [first, last] = chunks_of(unit);
    const int stride = partial_stride(unit.head_dim);
    if (first == last) {
        unit.end = (last + 1) * kContextChunk;
        unit.begin = first * kContextChunk;
        return kernels_->attention(unit, scratch);
    }
    float* const partial = scratch + attention_scratch(unit.head_dim);
    float* const sums = partial + kVectors * stride;
    for (int v = 0; v < unit.vectors; ++v) clear_sum(unit.head_dim, sums + v * stride);
    unit.partial = partial;
    for (int chunk = first; chunk <= last; ++chunk) {
        unit.begin = chunk * kContextChunk;
        unit.end = unit.begin + kContextChunk;
        kernels_->attention(unit, scratch);
        for (int v = 0; v < unit.vectors; ++v) join_chunk(partial + v * stride, unit.head_dim, sums + v * stride);
    }
    for (int v = 0; v < unit.vectors; ++v) write_output(sums + v * stride, unit.head_dim, unit.outputs[v]);
}

// How a row's attention is cut: units of up to kVectors query heads that share a key-value head and lie close together. A row with few
// queries and a long context is cut along the context too, which one thread alone would take long to go through.
Model::RowUnits Model::row_units(const Step& step, const StepArrays& arrays, int r) const {
    RowUnits row{};
    const int shared = step.heads / step.kv_heads, count = arrays.query_starts[r + 1] - arrays.query_starts[r];
    row.queries = std::max(1, kVectors / shared);
    row.slices = (shared + kVectors - 1) / kVectors;
    row.groups = (count + row.queries - 1) / row.queries;
    const int last = arrays.context_lens[r] - 1, first = step.window > 0 ? std::max(0, last - count + 1 - step.window + 1) : 0;
    row.first_chunk = first / kContextChunk;
    row.chunks = row.groups == 1 ? last / kContextChunk - row.first_chunk + 1 : 1;
    row.units = row.groups * row.chunks * step.kv_heads * row.slices;
    return row;
}

// Taken by workers as they come free: rows differ in length. What chunks leave is put together when all are done.
void Model::attention(const Step& step, int worker, const StepArrays& arrays, KVStore& kv) {
    std::atomic<int>& next = taken_[size_t(&step - steps.data())];
    int unit_index = next.fetch_add(1, std::memory_order_relaxed);
    int seen = 0;
    const size_t partial_size = size_t(kVectors * partial_stride(step.head_dim));
    size_t partials = 0;  // of the rows so far
    for (int r = 0; r < arrays.rows; ++r) {
        const RowUnits row = row_units(step, arrays, r);
        for (; unit_index < seen + row.units; unit_index = next.fetch_add(1, std::memory_order_relaxed)) {
            const int local = unit_index - seen;
            const int slice = local % row.slices, part = local / row.slices;
            if (row.chunks == 1) {  // one head's units after another's, the long ones first
                const int head = part / row.groups, group = row.groups - 1 - part % row.groups;
                AttentionUnit unit = attention_unit(step, arrays, kv, r, head, slice, group * row.queries, row.queries);
                const auto [first, last] = chunks_of(unit);
                if (row.groups > 1 && first == last && kv.format == KVFormat::Int8)
                    unit.expanded = shared_by(step, r, head, first * kContextChunk, worker);
                attend_in_chunks(unit, worker);
                continue;
            }
            const int head = part % step.kv_heads, chunk = part / step.kv_heads;
            AttentionUnit unit = attention_unit(step, arrays, kv, r, head, slice, 0, row.queries);
            unit.begin = (row.first_chunk + chunk) * kContextChunk;
            unit.end = unit.begin + kContextChunk;
            unit.partial = partials_.data() + (partials + size_t(local)) * partial_size;
            kernels_->attention(unit, scratch_[size_t(worker)].data());
        }
        seen += row.units;
        if (row.chunks > 1) partials += size_t(row.units);
    }
    if (partials == 0) return;
    pool_->barrier().wait();
    partials = 0;
    int turn = 0;
    for (int r = 0; r < arrays.rows; ++r) {
        const RowUnits row = row_units(step, arrays, r);
        if (row.chunks == 1) continue;
        const int parts = step.kv_heads * row.slices;
        for (int part = 0; part < parts; ++part, ++turn) {
            if (turn % pool_->threads() != worker) continue;
            const AttentionUnit unit = attention_unit(step, arrays, kv, r, part / row.slices, part % row.slices, 0, row.queries);
            float* const sum = scratch_[size_t(worker)].data();
            for (int v = 0; v < unit.vectors; ++v) {
                clear_sum(unit.head_dim, sum);
                for (int chunk = 0; chunk < row.chunks; ++chunk) {
                    const size_t at = (partials + size_t(chunk * parts + part)) * partial_size;
                    join_chunk(partials_.data() + at + v * partial_stride(unit.head_dim), unit.head_dim, sum);
                }
                write_output(sum, unit.head_dim, unit.outputs[v]);
            }
        }
        partials += size_t(row.units);
    }
}

Expanded* Model::shared_by(const Step& step, int row, int head, int begin, int worker) {
    Shared& own = shared_[size_t(worker)];
    if (own.step != &step || own.row != row || own.head != head || own.begin != begin) {
        own.step = &step;
        own.row = row;
        own.head = head;
        own.begin = begin;
        own.parts.keys.there = own.parts.values.there = 0;
    }
    return &own.parts;
}

// Room for what the units of a row share, empty at the beginning of every piece: since the last one positions were written.
void Model::reserve_shared(const KVStore& kv) {
    for (Shared& own : shared_) own.step = nullptr;
    if (kv.format != KVFormat::Int8) return;
    shared_.resize(size_t(pool_->threads()));
    const size_t elements = size_t(kContextChunk) * size_t(kv.head_dim);
    for (Shared& own : shared_) {
        if (own.memory.size() < 2 * elements) own.memory.resize(2 * elements);
        own.parts = {{own.memory.data(), 0}, {own.memory.data() + elements, 0}};
    }
}

// Room for what the chunks of this piece leave, in whichever layer they leave most.
void Model::reserve_partials(const StepArrays& arrays) {
    if (std::all_of(arrays.context_lens, arrays.context_lens + arrays.rows, [](int length) { return length <= kContextChunk; })) return;
    size_t most = 0;
    for (const Step& step : steps) {
        if (step.op != Op::Attention) continue;
        size_t units = 0;
        for (int r = 0; r < arrays.rows; ++r) {
            const RowUnits row = row_units(step, arrays, r);
            if (row.chunks > 1) units += size_t(row.units);
        }
        most = std::max(most, units * size_t(kVectors * partial_stride(step.head_dim)));
    }
    if (partials_.size() < most) partials_.resize(most);
}

}  // namespace octavo

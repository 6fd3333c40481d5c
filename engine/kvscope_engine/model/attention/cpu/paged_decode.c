/* Attention of one token per row over paged K and V in float32, reading the blocks in place.
 *
 * Who compiles this defines HEAD_DIM and GROUP, the query heads that share a KV head: loops of known
 * length stay in vector registers. A row and KV head go through their keys in chunks, with a softmax
 * that is kept up to date (Milakov and Gimelshein 2018); a chunk lies in runs, one for each block.
 */

#include <stdint.h>
#include <string.h>

enum { CHUNK = 256 };

/* Scores of a chunk, then its weights; one row for each query head. */
typedef float weights[GROUP][CHUNK];

/* What one query head has seen so far: its output is not divided by `sum` yet. */
struct softmax {
    float largest, sum;
};

/* Tokens that lie one behind the other, from a slot on. */
struct run {
    int64_t slot, count;
};

/* The run that begins with token `begin` and ends before token `end`, or with its block. */
static inline struct run run_of(
    const int64_t *table, int64_t block_size, int64_t begin, int64_t end)
{
    const int64_t block = begin / block_size, offset = begin - block * block_size;
    const int64_t rest = block_size - offset, wanted = end - begin;
    return (struct run){table[block] * block_size + offset, rest < wanted ? rest : wanted};
}

/* e^x for x <= 0, within two units in the last place; 1e-38 where it would be less.
 * Source: Cephes' expf. Without a branch, so that the loops around it become vectors.
 */
static inline float exponential(float x)
{
    const float shifter = 12582912.0f; /* 1.5 * 2^23: what is added to it becomes an integer */
    const int32_t shifter_bits = 0x4B400000;
    x = x < -87.0f ? -87.0f : x; /* NaN stays NaN */
    const float shifted = x * 1.44269504f + shifter; /* log2(e) */
    const float whole = shifted - shifter;
    const float rest = (x - whole * 0.693359375f) + whole * 2.12194440e-4f; /* ln(2), in two parts */
    float series = 1.9875691500e-4f;
    series = series * rest + 1.3981999507e-3f;
    series = series * rest + 8.3334519073e-3f;
    series = series * rest + 4.1665795894e-2f;
    series = series * rest + 1.6666665459e-1f;
    series = series * rest + 5.0000001201e-1f;
    series = series * rest * rest + rest + 1.0f;
    int32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (int32_t)((uint32_t)(bits - shifter_bits + 127) << 23);
    float power; /* 2^whole */
    memcpy(&power, &bits, sizeof power);
    return series * power;
}

static inline float hyperbolic_tangent(float x)
{
    const float size = x < 0.0f ? -x : x;
    const float decayed = exponential(-2.0f * size);
    const float tangent = (1.0f - decayed) / (1.0f + decayed);
    return x < 0.0f ? -tangent : tangent;
}

/* Dot products of `count` keys, `stride` elements apart, with each query. */
static inline void score(
    weights scores, int64_t first, const float *restrict query, int64_t head_stride,
    const float *restrict keys, int64_t count, int64_t stride)
{
    for (int64_t key = 0; key < count; key++)
        for (int head = 0; head < GROUP; head++) {
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int element = 0; element < HEAD_DIM; element++)
                sum += query[head * head_stride + element] * keys[key * stride + element];
            scores[head][first + key] = sum;
        }
}

/* Make `count` scores of one query weights. Returns the factor of what it has put out so far. */
static inline float weigh(
    struct softmax *seen, float *restrict scores, int64_t count, float scaling, float softcap)
{
    if (softcap > 0.0f)
        for (int64_t key = 0; key < count; key++)
            scores[key] = softcap * hyperbolic_tangent(scores[key] * scaling / softcap);
    else
        for (int64_t key = 0; key < count; key++)
            scores[key] *= scaling;
    float largest = seen->largest, sum = 0.0f;
#pragma omp simd reduction(max : largest)
    for (int64_t key = 0; key < count; key++)
        largest = scores[key] > largest ? scores[key] : largest;
#pragma omp simd reduction(+ : sum)
    for (int64_t key = 0; key < count; key++) {
        scores[key] = exponential(scores[key] - largest);
        sum += scores[key];
    }
    const float factor = exponential(seen->largest - largest);
    *seen = (struct softmax){largest, seen->sum * factor + sum};
    return factor;
}

/* Add `count` values, `stride` elements apart, to each query's output. */
static inline void add(
    float *restrict output, weights weights, int64_t first, const float *restrict values,
    int64_t count, int64_t stride)
{
    for (int head = 0; head < GROUP; head++) {
        float sum[HEAD_DIM];
        memcpy(sum, output + head * HEAD_DIM, sizeof sum);
        for (int64_t key = 0; key < count; key++)
#pragma omp simd
            for (int element = 0; element < HEAD_DIM; element++)
                sum[element] += weights[head][first + key] * values[key * stride + element];
        memcpy(output + head * HEAD_DIM, sum, sizeof sum);
    }
}

/* query: rows of (num_kv_heads * GROUP, HEAD_DIM); the strides of rows and heads are in elements.
 * keys, values: (num_blocks, block_size, num_kv_heads, HEAD_DIM). tables: the rows' block ids, those
 * of row i from starts[i] on. contexts: tokens before and with the row's own; it sees the last
 * `window` of them. softcap: 0 for none. output: (num_rows, num_kv_heads * GROUP, HEAD_DIM).
 */
void paged_decode(
    const float *query, int64_t row_stride, int64_t head_stride, const float *keys,
    const float *values, const int64_t *tables, const int64_t *starts, const int64_t *contexts,
    float *output, int64_t num_rows, int64_t num_kv_heads, int64_t block_size, int64_t window,
    float scaling, float softcap, int num_threads)
{
    const int64_t stride = num_kv_heads * HEAD_DIM;
#pragma omp parallel for collapse(2) schedule(dynamic) num_threads(num_threads)
    for (int64_t row = 0; row < num_rows; row++)
        for (int64_t kv_head = 0; kv_head < num_kv_heads; kv_head++) {
            const float *const row_query = query + row * row_stride + kv_head * GROUP * head_stride;
            float *const row_output = output + (row * num_kv_heads + kv_head) * GROUP * HEAD_DIM;
            const float *const head_keys = keys + kv_head * HEAD_DIM;
            const float *const head_values = values + kv_head * HEAD_DIM;
            const int64_t *const table = tables + starts[row];
            const int64_t context = contexts[row];
            weights weights;
            struct softmax seen[GROUP];
            for (int head = 0; head < GROUP; head++)
                seen[head] = (struct softmax){-3.4e38f, 0.0f};
            memset(row_output, 0, GROUP * HEAD_DIM * sizeof *row_output);

            int64_t begin = context > window ? context - window : 0, end;
            for (; begin < context; begin = end) {
                end = begin + CHUNK < context ? begin + CHUNK : context;
                struct run run;
                for (int64_t key = begin; key < end; key += run.count) {
                    run = run_of(table, block_size, key, end);
                    score(
                        weights, key - begin, row_query, head_stride,
                        head_keys + run.slot * stride, run.count, stride);
                }
                for (int head = 0; head < GROUP; head++) {
                    const float factor =
                        weigh(&seen[head], weights[head], end - begin, scaling, softcap);
                    for (int element = 0; element < HEAD_DIM; element++)
                        row_output[head * HEAD_DIM + element] *= factor;
                }
                for (int64_t key = begin; key < end; key += run.count) {
                    run = run_of(table, block_size, key, end);
                    add(row_output, weights, key - begin, head_values + run.slot * stride,
                        run.count, stride);
                }
            }
            for (int head = 0; head < GROUP; head++)
                for (int element = 0; element < HEAD_DIM; element++)
                    row_output[head * HEAD_DIM + element] /= seen[head].sum;
        }
}

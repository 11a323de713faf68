/* Bilinear scaling of interleaved RGB bytes, pixel centres at one half, rounded to the nearest grey level.

   The arithmetic is that of TensorFlow's ResizeBilinear in single precision on pixels that are half a grey level
   brighter, fraction cut off: the same operations in the same order, so the same bits. What makes it fast: bytes in,
   bytes out in one pass, every row of the source is stretched once, and a mirrored image costs nothing.

   No contraction to fused multiply-add (-ffp-contract=off): it would change bits. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bilinear.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))

typedef float float4 __attribute__((vector_size(16)));

struct Tap {
    int32_t lower, upper;
    float share; /* of the upper one */
};

static void find_taps(Tap *taps, int count, int source) {
    const float scale = (float)source / (float)count;
    for (int i = 0; i < count; i++) {
        const float place = ((float)i + 0.5f) * scale - 0.5f;
        const float whole = floorf(place);
        const int lower = (int)whole, upper = (int)ceilf(place);
        taps[i].lower = lower < 0 ? 0 : lower < source ? lower : source - 1;
        taps[i].upper = upper < source ? upper : source - 1;
        taps[i].share = place - whole;
    }
}

static ALWAYS_INLINE float4 pixel_at(const float *row, int column) {
    float4 pixel;
    memcpy(&pixel, row + 3 * (ptrdiff_t)column, sizeof pixel);
    return pixel;
}

/* Pixels of three floats are read and written as four: the fourth is overwritten by the next, or is padding. */
static ALWAYS_INLINE void stretch_row(const uint8_t *__restrict source, int width, float *__restrict row,
                                      const Tap *__restrict taps, int size, float *__restrict out) {
    for (int k = 0; k < 3 * width; k++)
        row[k] = (float)source[k] + 0.5f;
    for (int x = 0; x < size; x++) {
        const float4 left = pixel_at(row, taps[x].lower), right = pixel_at(row, taps[x].upper);
        const float4 mixed = left + (right - left) * taps[x].share;
        memcpy(out + 3 * (ptrdiff_t)x, &mixed, sizeof mixed);
    }
}

static ALWAYS_INLINE void mix_rows(const float *top, const float *bottom, float share, int count,
                                   uint8_t *__restrict out) {
    for (int k = 0; k < count; k++)
        out[k] = (uint8_t)(int32_t)(top[k] + (bottom[k] - top[k]) * share);
}

/* Room for two stretched rows and one that is not yet. */
struct Rows {
    float *top, *bottom, *source;
};

static ALWAYS_INLINE void scale(const uint8_t *source, ptrdiff_t stride, int width, const Tap *across, const Tap *down,
                                Rows rows, uint8_t *out, int size) {
    float *top = rows.top, *bottom = rows.bottom;
    int in_top = -1, in_bottom = -1;
    for (int y = 0; y < size; y++) {
        const int upper = down[y].lower, lower = down[y].upper;
        if (upper == in_bottom) {
            float *spare = top;
            top = bottom, bottom = spare;
            in_bottom = in_top, in_top = upper;
        }
        if (upper != in_top)
            stretch_row(source + upper * stride, width, rows.source, across, size, top), in_top = upper;
        if (lower != in_bottom && lower != upper)
            stretch_row(source + lower * stride, width, rows.source, across, size, bottom), in_bottom = lower;
        mix_rows(top, lower == upper ? top : bottom, down[y].share, 3 * size, out + (ptrdiff_t)y * 3 * size);
    }
}

typedef void Scale(const uint8_t *, ptrdiff_t, int, const Tap *, const Tap *, Rows, uint8_t *, int);

static void scale_anywhere(const uint8_t *source, ptrdiff_t stride, int width, const Tap *across, const Tap *down,
                           Rows rows, uint8_t *out, int size) {
    scale(source, stride, width, across, down, rows, out, size);
}

#if defined(__x86_64__)
/* Wider registers, the same bits. */
__attribute__((target("avx2"))) static void scale_with_avx2(const uint8_t *source, ptrdiff_t stride, int width,
                                                            const Tap *across, const Tap *down, Rows rows,
                                                            uint8_t *out, int size) {
    scale(source, stride, width, across, down, rows, out, size);
}

static Scale *best_here() { return __builtin_cpu_supports("avx2") ? scale_with_avx2 : scale_anywhere; }
#else
static Scale *best_here() { return scale_anywhere; }
#endif

int distxcept_scale(const uint8_t *source, ptrdiff_t stride, int height, int width, uint8_t *out, int size,
                    int mirrored) {
    const size_t out_floats = 3 * (size_t)size + 1, in_floats = 3 * (size_t)width + 1;
    Tap *across = (Tap *)malloc(2 * (size_t)size * sizeof(Tap)), *down = across + size;
    float *top = (float *)calloc(2 * out_floats + in_floats, sizeof(float)), *bottom = top + out_floats;
    if (!across || !top) {
        free(across), free(top);
        return 1;
    }
    find_taps(across, size, width);
    find_taps(down, size, height);
    for (int x = 0; mirrored && x < size / 2; x++) {
        const Tap tap = across[x];
        across[x] = across[size - 1 - x];
        across[size - 1 - x] = tap;
    }
    best_here()(source, stride, width, across, down, Rows{top, bottom, bottom + out_floats}, out, size);
    free(across), free(top);
    return 0;
}

/* Scaling of interleaved RGB bytes to a square: means of whole blocks first, where the target is less than half as large,
   then bilinear with pixel centres at one half, rounded to the nearest grey level.

   The arithmetic is that of TensorFlow's ResizeBilinear in single precision on pixels that are half a grey level
   brighter, fraction cut off: the same operations in the same order, so the same bits. What makes it fast: bytes in,
   bytes out in one pass, every row of the source is stretched once, and a mirrored image costs nothing.

   No contraction to fused multiply-add (-ffp-contract=off): it would change bits. */

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#define DISTXCEPT_INLINE inline __attribute__((always_inline))

namespace distxcept {

/* Kept by each thread between images, because fresh memory costs page faults; very large ones are given back. */
class Buffer {
  public:
    ~Buffer() { free(bytes_); }
    /* Memory for this much; nullptr if there is none. What was in it is lost. */
    void *of(size_t wanted) {
        if (wanted > size_) {
            free(bytes_);
            bytes_ = malloc(wanted);
            size_ = bytes_ ? wanted : 0;
        }
        return bytes_;
    }
    void give_back() {
        if (size_ > kKept) {
            free(bytes_);
            bytes_ = nullptr, size_ = 0;
        }
    }

  private:
    static constexpr size_t kKept = 4 << 20;
    void *bytes_ = nullptr;
    size_t size_ = 0;
};

/* [height, width, 3], rows `stride` bytes apart. */
struct Patch {
    const uint8_t *pixels;
    ptrdiff_t stride;
    int64_t height, width;
};

typedef float float4 __attribute__((vector_size(16)));

struct Tap {
    int64_t lower, upper;
    float share; /* of the upper one */
};

inline void find_taps(Tap *taps, int count, int64_t source) {
    const float scale = (float)source / (float)count;
    for (int i = 0; i < count; i++) {
        const float place = ((float)i + 0.5f) * scale - 0.5f;
        const float whole = std::floor(place);
        const int64_t lower = (int64_t)whole, upper = (int64_t)std::ceil(place);
        taps[i].lower = lower < 0 ? 0 : lower < source ? lower : source - 1;
        taps[i].upper = upper < source ? upper : source - 1;
        taps[i].share = place - whole;
    }
}

DISTXCEPT_INLINE float4 pixel_at(const float *row, int64_t column) {
    float4 pixel;
    memcpy(&pixel, row + 3 * column, sizeof pixel);
    return pixel;
}

/* Pixels of three floats are read and written as four: the fourth is overwritten by the next, or is padding. */
DISTXCEPT_INLINE void stretch_row(const uint8_t *__restrict source, int64_t width, float *__restrict row,
                                  const Tap *__restrict taps, int size, float *__restrict out) {
    for (int64_t k = 0; k < 3 * width; k++)
        row[k] = (float)source[k] + 0.5f;
    for (int x = 0; x < size; x++) {
        const float4 left = pixel_at(row, taps[x].lower), right = pixel_at(row, taps[x].upper);
        const float4 mixed = left + (right - left) * taps[x].share;
        memcpy(out + 3 * (ptrdiff_t)x, &mixed, sizeof mixed);
    }
}

DISTXCEPT_INLINE void mix_rows(const float *top, const float *bottom, float share, int64_t count,
                               uint8_t *__restrict out) {
    for (int64_t k = 0; k < count; k++)
        out[k] = (uint8_t)(int32_t)(top[k] + (bottom[k] - top[k]) * share);
}

/* Room for two stretched rows and one that is not yet. */
struct Rows {
    float *top, *bottom, *source;
};

DISTXCEPT_INLINE void stretch(const Patch &patch, const Tap *across, const Tap *down, Rows rows, uint8_t *out,
                              int size) {
    float *top = rows.top, *bottom = rows.bottom;
    int64_t in_top = -1, in_bottom = -1;
    for (int y = 0; y < size; y++) {
        const int64_t upper = down[y].lower, lower = down[y].upper;
        if (upper == in_bottom) {
            std::swap(top, bottom);
            in_bottom = in_top, in_top = upper;
        }
        if (upper != in_top) {
            stretch_row(patch.pixels + upper * patch.stride, patch.width, rows.source, across, size, top);
            in_top = upper;
        }
        if (lower != in_bottom && lower != upper) {
            stretch_row(patch.pixels + lower * patch.stride, patch.width, rows.source, across, size, bottom);
            in_bottom = lower;
        }
        mix_rows(top, lower == upper ? top : bottom, down[y].share, 3 * (int64_t)size, out + (ptrdiff_t)y * 3 * size);
    }
}

inline void stretch_anywhere(const Patch &patch, const Tap *across, const Tap *down, Rows rows, uint8_t *out,
                             int size) {
    stretch(patch, across, down, rows, out, size);
}

#if defined(__x86_64__)
/* Wider registers, the same bits. */
__attribute__((target("avx2"))) inline void stretch_with_avx2(const Patch &patch, const Tap *across, const Tap *down,
                                                              Rows rows, uint8_t *out, int size) {
    stretch(patch, across, down, rows, out, size);
}
inline auto best_here() { return __builtin_cpu_supports("avx2") ? stretch_with_avx2 : stretch_anywhere; }
#else
inline auto best_here() { return stretch_anywhere; }
#endif

/* Means of blocks of factor × factor pixels; those at the right and bottom edge may be smaller. The arithmetic is that
   of Pillow's Image.reduce: a product with 2^24 / pixels, cut off, instead of a division. */
inline bool reduce_blocks(Patch *patch, int64_t factor, Buffer *buffer) {
    const int64_t height = (patch->height + factor - 1) / factor, width = (patch->width + factor - 1) / factor;
    uint8_t *out = (uint8_t *)buffer->of(3 * (size_t)height * width);
    if (!out)
        return false;
    uint8_t *next = out;
    for (int64_t y = 0; y < patch->height; y += factor) {
        const int64_t rows = std::min(factor, patch->height - y);
        for (int64_t x = 0; x < patch->width; x += factor) {
            const int64_t columns = std::min(factor, patch->width - x), count = rows * columns;
            const uint64_t share = (uint64_t)(4294967296.0f / (float)(256 * count));
            uint64_t sums[3] = {};
            for (int64_t row = y; row < y + rows; row++) {
                const uint8_t *pixel = patch->pixels + row * patch->stride + 3 * x;
                for (int64_t k = 0; k < columns; k++, pixel += 3)
                    sums[0] += pixel[0], sums[1] += pixel[1], sums[2] += pixel[2];
            }
            for (const uint64_t sum : sums)
                *next++ = (uint8_t)((sum + count / 2) * share >> 24);
        }
    }
    *patch = {out, 3 * width, height, width};
    return true;
}

/* What one thread needs for one image. */
struct Scratch {
    Buffer pixels, upright, blocks, rows;

    void give_back() {
        for (Buffer *buffer : {&pixels, &upright, &blocks, &rows})
            buffer->give_back();
    }
};

/* To [size, size, 3]; false without memory. */
inline bool scale(Patch patch, uint8_t *out, int size, bool mirrored, Scratch *scratch) {
    const int64_t factor = std::min(patch.height, patch.width) / size;
    if (factor > 1 && !reduce_blocks(&patch, factor, &scratch->blocks))
        return false;
    const size_t out_floats = 3 * (size_t)size + 1, in_floats = 3 * (size_t)patch.width + 1;
    const size_t tap_bytes = 2 * (size_t)size * sizeof(Tap), float_count = 2 * out_floats + in_floats;
    uint8_t *room = (uint8_t *)scratch->rows.of(tap_bytes + float_count * sizeof(float));
    if (!room)
        return false;
    Tap *across = (Tap *)room, *down = across + size;
    float *top = (float *)(room + tap_bytes), *bottom = top + out_floats, *source = bottom + out_floats;
    top[out_floats - 1] = bottom[out_floats - 1] = source[in_floats - 1] = 0;
    find_taps(across, size, patch.width);
    find_taps(down, size, patch.height);
    for (int x = 0; mirrored && x < size / 2; x++)
        std::swap(across[x], across[size - 1 - x]);
    best_here()(patch, across, down, Rows{top, bottom, source}, out, size);
    return true;
}

} // namespace distxcept

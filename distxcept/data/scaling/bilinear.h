#pragma once

#include <stddef.h>
#include <stdint.h>

/* From [height, width, 3], rows `stride` bytes apart, to [size, size, 3]. Returns 0, or 1 without memory. */
extern "C" int distxcept_scale(const uint8_t *source, ptrdiff_t stride, int height, int width, uint8_t *out, int size,
                               int mirrored);

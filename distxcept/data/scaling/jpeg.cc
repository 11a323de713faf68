/* A group of JPEG images, each decoded and scaled into its slot, in one call: threads of Python that decode do not wait
   for each other's turn with the interpreter after every image.

   The decoder is TensorFlow's own, entered where its operation DecodeAndCropJpeg enters it and told the same, so the
   bits are the same. It is found when the program runs; nothing of TensorFlow is needed to compile this. */

#include <stdint.h>
#include <stdlib.h>

#include <functional>

#include "bilinear.h"

namespace {

/* What TensorFlow calls jpeg::UncompressFlags, in the versions that jpeg.py names. */
struct Flags {
    int ratio, components;
    bool fancy_upscaling, recover_truncated;
    float least_fraction;
    int stride, dct_method;
    bool crop;
    int left, top, width, height;
};

using Allocate = std::function<uint8_t *(int, int, int)>;
using Uncompress = uint8_t *(*)(const void *, int, const Flags &, int64_t *, Allocate);

constexpr int kFastIntegers = 1; /* JDCT_IFAST */

enum Status : int32_t { kDone, kBroken, kNoMemory };

/* Kept by each thread between images, because fresh memory costs page faults; very large ones are given back. */
class Buffer {
  public:
    ~Buffer() { free(bytes_); }
    uint8_t *of(size_t wanted) {
        if (wanted > size_) {
            free(bytes_);
            bytes_ = (uint8_t *)malloc(wanted);
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
    uint8_t *bytes_ = nullptr;
    size_t size_ = 0;
};

} // namespace

struct Image {
    const uint8_t *data;
    int64_t length;
    uint8_t *out;
    int32_t top, left, height, width; /* of the window, at the scale 1/ratio */
    int32_t ratio, mirrored, status;
};

static Status fill(Uncompress uncompress, const Image &image, int size, Buffer &buffer) {
    const Flags flags = {image.ratio, 3,    true,       false,     1.0f,        0,
                         kFastIntegers, true, image.left, image.top, image.width, image.height};
    if (image.length > INT32_MAX)
        return kBroken; /* the decoder counts in int; the operation refuses it too */
    bool no_memory = false;
    const auto allocate = [&](int width, int height, int channels) -> uint8_t * {
        if (width != image.width || height != image.height || channels != 3)
            return nullptr;
        uint8_t *bytes = buffer.of((size_t)width * height * channels);
        no_memory = !bytes;
        return bytes;
    };
    const uint8_t *pixels = uncompress(image.data, (int)image.length, flags, nullptr, allocate);
    if (!pixels)
        return no_memory ? kNoMemory : kBroken;
    const ptrdiff_t stride = 3 * (ptrdiff_t)image.width;
    return distxcept_scale(pixels, stride, image.height, image.width, image.out, size, image.mirrored) ? kNoMemory
                                                                                                       : kDone;
}

/* Each image gets its status; a broken one is its own matter. */
extern "C" void distxcept_jpegs(void *uncompress, Image *images, int count, int size) {
    static thread_local Buffer buffer;
    for (int i = 0; i < count; i++) {
        try {
            images[i].status = fill((Uncompress)uncompress, images[i], size, buffer);
        } catch (...) { /* std::bad_alloc is all that may come */
            images[i].status = kNoMemory;
        }
        buffer.give_back();
    }
}

/* Operations of the input pipeline, each for a whole batch: reading files, telling the sizes of images, and decoding a
   window of each, scaled, into its place in the batch.

   A sample that cannot be used is the matter of that sample: it gets a status, and the others are not touched. Only want
   of memory fails the operation. The images of a batch are done one after the other; the pipeline calls in parallel.
   The JPEG decoder is TensorFlow's own, told the same as by the operation DecodeAndCropJpeg, so the bits are the same. */

#include <algorithm>
#include <vector>

#include "files.h"
#include "header.h"
#include "scaling.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/lib/hash/crc32c.h"
#include "tensorflow/core/lib/jpeg/jpeg_mem.h"

namespace distxcept {

namespace tf = tensorflow;
using tf::shape_inference::InferenceContext;

/* The vector of contents, paths or numbers that an input must be; all inputs of an operation have the same length. */
static absl::Status check_rows(tf::OpKernelContext *context, const std::vector<int64_t> &columns) {
    const int64_t rows = context->input(0).dim_size(0);
    for (int k = 0; k < (int)columns.size(); k++) {
        const tf::TensorShape wanted = columns[k] ? tf::TensorShape({rows, columns[k]}) : tf::TensorShape({rows});
        if (context->input(k).shape() != wanted)
            return absl::InvalidArgumentError(absl::StrCat("input ", k, " has the shape ",
                                                           context->input(k).shape().DebugString(), ", not ",
                                                           wanted.DebugString()));
    }
    return absl::OkStatus();
}

/* ---- reading ---- */

/* Not marked as stateful: where operations have to be deterministic, tf.data would run it one call at a time. So paths
   must depend on an input of the graph, as those of a pipeline do, or TensorFlow may read them once for all. */
REGISTER_OP("DistxceptReadFiles")
    .Input("paths: string")
    .Input("offsets: int64")
    .Input("lengths: int64")
    .Output("contents: string")
    .Output("ok: bool")
    .Attr("pauses: list(float)")
    .SetShapeFn([](InferenceContext *context) {
        context->set_output(0, context->input(0));
        context->set_output(1, context->input(0));
        return absl::OkStatus();
    });

class ReadFiles : public tf::OpKernel {
  public:
    explicit ReadFiles(tf::OpKernelConstruction *construction) : OpKernel(construction) {
        OP_REQUIRES_OK(construction, construction->GetAttr("pauses", &pauses_));
    }

    void Compute(tf::OpKernelContext *context) override {
        OP_REQUIRES(context, context->input(0).dims() == 1, absl::InvalidArgumentError("paths must be a vector"));
        OP_REQUIRES_OK(context, check_rows(context, {0, 0, 0}));
        tf::Tensor *contents, *ok;
        OP_REQUIRES_OK(context, context->allocate_output(0, context->input(0).shape(), &contents));
        OP_REQUIRES_OK(context, context->allocate_output(1, context->input(0).shape(), &ok));
        ok->vec<bool>().setConstant(false);
        std::vector<int64_t> waiting;
        for (int64_t row = 0; row < contents->dim_size(0); row++)
            if (!context->input(0).vec<tf::tstring>()(row).empty())
                waiting.push_back(row);
        /* The pauses are shared: a storage that fails for a whole batch costs no more time than for one file. */
        for (size_t round = 0;; round++) {
            bool no_memory = false;
            waiting = read(context, waiting, contents, ok, &no_memory);
            OP_REQUIRES(context, !no_memory, absl::ResourceExhaustedError("no memory for the contents of a file"));
            if (waiting.empty() || round == pauses_.size())
                return;
            OP_REQUIRES(context, pause(context, pauses_[round]), absl::CancelledError("reading was cancelled"));
        }
    }

  private:
    /* The rows that are to be tried again. */
    std::vector<int64_t> read(tf::OpKernelContext *context, const std::vector<int64_t> &rows, tf::Tensor *contents,
                              tf::Tensor *ok, bool *no_memory) {
        const auto paths = context->input(0).vec<tf::tstring>();
        const auto offsets = context->input(1).vec<int64_t>(), lengths = context->input(2).vec<int64_t>();
        std::vector<int64_t> again;
        for (const int64_t row : rows) {
            tf::tstring content;
            switch (read_range(context->env(), &open_files(), paths(row), offsets(row), lengths(row), kMostBytes,
                               &content)) {
            case Found::kContent:
                contents->vec<tf::tstring>()(row) = std::move(content);
                ok->vec<bool>()(row) = true;
                break;
            case Found::kNever:
                break;
            case Found::kLater:
                again.push_back(row);
                break;
            case Found::kNoMemory:
                *no_memory = true;
                return {};
            }
        }
        return again;
    }

    /* False if the pipeline was closed meanwhile. */
    static bool pause(tf::OpKernelContext *context, double seconds) {
        const uint64_t end = context->env()->NowMicros() + (uint64_t)(seconds * 1e6);
        while (context->env()->NowMicros() < end) {
            if (context->cancellation_manager() && context->cancellation_manager()->IsCancelled())
                return false;
            context->env()->SleepForMicroseconds(20000);
        }
        return true;
    }

    static OpenFiles &open_files() {
        static OpenFiles *files = new OpenFiles; /* never destroyed: threads may read while the process ends */
        return *files;
    }

    std::vector<float> pauses_;
};

REGISTER_KERNEL_BUILDER(Name("DistxceptReadFiles").Device(tf::DEVICE_CPU), ReadFiles);

/* ---- checksums ---- */

REGISTER_OP("DistxceptChecksum")
    .Input("contents: string")
    .Output("sums: int64")
    .SetShapeFn([](InferenceContext *context) {
        context->set_output(0, context->input(0));
        return absl::OkStatus();
    });

/* CRC-32C, as TFRecord files have it, without the mask. */
class Checksum : public tf::OpKernel {
  public:
    using OpKernel::OpKernel;

    void Compute(tf::OpKernelContext *context) override {
        OP_REQUIRES(context, context->input(0).dims() == 1, absl::InvalidArgumentError("contents must be a vector"));
        const auto contents = context->input(0).vec<tf::tstring>();
        tf::Tensor *sums;
        OP_REQUIRES_OK(context, context->allocate_output(0, context->input(0).shape(), &sums));
        for (int64_t row = 0; row < contents.size(); row++)
            sums->vec<int64_t>()(row) = tf::crc32c::Value(contents(row).data(), contents(row).size());
    }
};

REGISTER_KERNEL_BUILDER(Name("DistxceptChecksum").Device(tf::DEVICE_CPU), Checksum);

/* ---- sizes ---- */

REGISTER_OP("DistxceptInspect")
    .Input("contents: string")
    .Output("sizes: int32")
    .Output("details: int32")
    .Attr("raw: bool")
    .Attr("max_pixels: int")
    .SetShapeFn([](InferenceContext *context) {
        context->set_output(0, context->MakeShape({context->NumElements(context->input(0)), 2}));
        context->set_output(1, context->output(0));
        return absl::OkStatus();
    });

/* Height and width of the upright images, and kind and orientation. */
class Inspect : public tf::OpKernel {
  public:
    explicit Inspect(tf::OpKernelConstruction *construction) : OpKernel(construction) {
        OP_REQUIRES_OK(construction, construction->GetAttr("raw", &raw_));
        OP_REQUIRES_OK(construction, construction->GetAttr("max_pixels", &max_pixels_));
    }

    void Compute(tf::OpKernelContext *context) override {
        OP_REQUIRES(context, context->input(0).dims() == 1, absl::InvalidArgumentError("contents must be a vector"));
        const auto contents = context->input(0).vec<tf::tstring>();
        tf::Tensor *sizes, *details;
        OP_REQUIRES_OK(context, context->allocate_output(0, {contents.size(), 2}, &sizes));
        OP_REQUIRES_OK(context, context->allocate_output(1, {contents.size(), 2}, &details));
        for (int64_t row = 0; row < contents.size(); row++) {
            const Header header = inspect(contents(row).data(), contents(row).size(), raw_, max_pixels_);
            sizes->matrix<int32_t>()(row, 0) = (int32_t)header.upright_height();
            sizes->matrix<int32_t>()(row, 1) = (int32_t)header.upright_width();
            details->matrix<int32_t>()(row, 0) = header.kind;
            details->matrix<int32_t>()(row, 1) = header.orientation;
        }
    }

  private:
    bool raw_;
    int64_t max_pixels_;
};

REGISTER_KERNEL_BUILDER(Name("DistxceptInspect").Device(tf::DEVICE_CPU), Inspect);

/* ---- decoding and scaling ---- */

REGISTER_OP("DistxceptFill")
    .Input("contents: string")
    .Input("windows: int32")
    .Input("flips: bool")
    .Output("images: uint8")
    .Output("status: int32")
    .Attr("size: int >= 1")
    .Attr("raw: bool")
    .Attr("max_pixels: int")
    .SetShapeFn([](InferenceContext *context) {
        int size;
        TF_RETURN_IF_ERROR(context->GetAttr("size", &size));
        const auto rows = context->NumElements(context->input(0));
        context->set_output(0, context->MakeShape({rows, size, size, 3}));
        context->set_output(1, context->MakeShape({rows}));
        return absl::OkStatus();
    });

enum Status : int32_t { kDone, kBroken, kNeedsPillow, kNoMemory };

struct Window {
    int64_t top, left, height, width;

    bool within(int64_t whole_height, int64_t whole_width) const {
        return top >= 0 && left >= 0 && height > 0 && width > 0 && top + height <= whole_height &&
               left + width <= whole_width;
    }
};

/* EXIF orientation → from stored to upright pixels: transpose, then flip up-down, then left-right. */
constexpr bool kToUpright[9][3] = {{0, 0, 0}, {0, 0, 0}, {0, 0, 1}, {0, 1, 1}, {0, 1, 0},
                                   {1, 0, 0}, {1, 0, 1}, {1, 1, 1}, {1, 1, 0}};

/* The window in stored pixels of an image at the scale 1/ratio. */
static Window stored_window(const Header &header, const Window &window, int ratio) {
    const auto [transpose, flip_rows, flip_columns] = kToUpright[header.orientation];
    int64_t top = flip_rows ? header.upright_height() - window.top - window.height : window.top;
    int64_t left = flip_columns ? header.upright_width() - window.left - window.width : window.left;
    const int64_t bottom = (top + window.height + ratio - 1) / ratio, right = (left + window.width + ratio - 1) / ratio;
    top /= ratio, left /= ratio;
    if (transpose)
        return {left, top, right - left, bottom - top};
    return {top, left, bottom - top, right - left};
}

/* Copies stored pixels in upright order; false without memory. */
static bool turn_upright(Patch *patch, int orientation, Buffer *buffer) {
    const auto [transpose, flip_rows, flip_columns] = kToUpright[orientation];
    const int64_t height = transpose ? patch->width : patch->height, width = transpose ? patch->height : patch->width;
    uint8_t *out = (uint8_t *)buffer->of(3 * (size_t)height * width);
    if (!out)
        return false;
    uint8_t *next = out;
    for (int64_t y = 0; y < height; y++) {
        const int64_t row = flip_rows ? height - 1 - y : y;
        for (int64_t x = 0; x < width; x++, next += 3) {
            const int64_t column = flip_columns ? width - 1 - x : x;
            memcpy(next, patch->pixels + (transpose ? column : row) * patch->stride + 3 * (transpose ? row : column), 3);
        }
    }
    *patch = {out, 3 * width, height, width};
    return true;
}

/* The window of a JPEG, upright, at the smallest of the scales 1/8, 1/4, 1/2, 1 that still covers the target. */
static Status decode(const tf::tstring &content, const Header &header, const Window &window, int size,
                     Scratch *scratch, Patch *patch) {
    int ratio = 8;
    while (ratio > 1 && std::min(window.height, window.width) / ratio < size)
        ratio /= 2;
    const Window stored = stored_window(header, window, ratio);
    tf::jpeg::UncompressFlags flags;
    flags.ratio = ratio;
    flags.components = 3;
    flags.dct_method = JDCT_IFAST;
    flags.crop = true;
    flags.crop_x = (int)stored.left, flags.crop_y = (int)stored.top;
    flags.crop_width = (int)stored.width, flags.crop_height = (int)stored.height;
    bool no_memory = false;
    const auto allocate = [&](int width, int height, int channels) -> uint8_t * {
        if (width != stored.width || height != stored.height || channels != 3)
            return nullptr;
        uint8_t *bytes = (uint8_t *)scratch->pixels.of(3 * (size_t)width * height);
        no_memory = !bytes;
        return bytes;
    };
    const uint8_t *pixels = tf::jpeg::Uncompress(content.data(), (int)content.size(), flags, nullptr, allocate);
    if (!pixels)
        return no_memory ? kNoMemory : kBroken;
    *patch = {pixels, 3 * stored.width, stored.height, stored.width};
    if (header.orientation != 1 && !turn_upright(patch, header.orientation, &scratch->upright))
        return kNoMemory;
    return kDone;
}

class Fill : public tf::OpKernel {
  public:
    explicit Fill(tf::OpKernelConstruction *construction) : OpKernel(construction) {
        OP_REQUIRES_OK(construction, construction->GetAttr("size", &size_));
        OP_REQUIRES_OK(construction, construction->GetAttr("raw", &raw_));
        OP_REQUIRES_OK(construction, construction->GetAttr("max_pixels", &max_pixels_));
    }

    void Compute(tf::OpKernelContext *context) override {
        OP_REQUIRES(context, context->input(0).dims() == 1, absl::InvalidArgumentError("contents must be a vector"));
        OP_REQUIRES_OK(context, check_rows(context, {0, 4, 0}));
        const auto contents = context->input(0).vec<tf::tstring>();
        const auto windows = context->input(1).matrix<int32_t>();
        const auto flips = context->input(2).vec<bool>();
        tf::TensorShape shape;
        OP_REQUIRES_OK(context, tf::TensorShape::BuildTensorShape({contents.size(), size_, size_, 3}, &shape));
        tf::Tensor *images, *statuses;
        OP_REQUIRES_OK(context, context->allocate_output(0, shape, &images));
        OP_REQUIRES_OK(context, context->allocate_output(1, {contents.size()}, &statuses));
        const size_t image_bytes = 3 * (size_t)size_ * size_;
        static thread_local Scratch scratch;
        for (int64_t row = 0; row < contents.size(); row++) {
            const Window window = {windows(row, 0), windows(row, 1), windows(row, 2), windows(row, 3)};
            uint8_t *out = images->flat<uint8_t>().data() + row * image_bytes;
            const Status status = fill(contents(row), window, flips(row), out, &scratch);
            scratch.give_back();
            OP_REQUIRES(context, status != kNoMemory, absl::ResourceExhaustedError("no memory to decode an image"));
            if (status != kDone)
                memset(out, 0, image_bytes);
            statuses->vec<int32_t>()(row) = status;
        }
    }

  private:
    Status fill(const tf::tstring &content, const Window &window, bool flip, uint8_t *out, Scratch *scratch) const {
        const Header header = inspect(content.data(), content.size(), raw_, max_pixels_);
        if (header.kind == kUnusable || !window.within(header.upright_height(), header.upright_width()))
            return kBroken;
        if (header.kind == kOther)
            return kNeedsPillow;
        Patch patch;
        if (raw_) {
            const int64_t stride = 3 * header.width;
            const auto *pixels = (const uint8_t *)content.data() + kRawHeader;
            patch = {pixels + window.top * stride + 3 * window.left, (ptrdiff_t)stride, window.height, window.width};
        } else {
            const Status status = decode(content, header, window, size_, scratch, &patch);
            if (status != kDone)
                return status;
        }
        return scale(patch, out, size_, flip, scratch) ? kDone : kNoMemory;
    }

    int size_;
    bool raw_;
    int64_t max_pixels_;
};

REGISTER_KERNEL_BUILDER(Name("DistxceptFill").Device(tf::DEVICE_CPU), Fill);

} // namespace distxcept

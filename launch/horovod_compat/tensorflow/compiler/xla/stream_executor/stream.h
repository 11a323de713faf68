// Horovod 0.28.1 declares stream_executor::gpu::AsGpuStreamValue itself, includes this file for the
// Stream class, and leaves the definition to TensorFlow, which has it no longer. This header shadows
// TensorFlow's file of the same name (our folder comes first on the include path), includes the class
// from where it lives now, and adds the definition.

#ifndef DISTXCEPT_HOROVOD_COMPAT_STREAM_H_
#define DISTXCEPT_HOROVOD_COMPAT_STREAM_H_

#include "xla/stream_executor/stream.h"

#if HAVE_CUDA

#include <cuda_runtime.h>

#include <type_traits>
#include <utility>

namespace stream_executor {
namespace gpu {

// The cast below is right only while the handle is an untyped pointer that holds the CUstream.
// Should TensorFlow change it, stop here instead of launching work on a wrong stream.
static_assert(
    std::is_same<decltype(std::declval<const Stream&>().platform_specific_handle().stream), void*>::value,
    "TensorFlow changed Stream::platform_specific_handle(); adapt launch/horovod_compat");

inline cudaStream_t AsGpuStreamValue(Stream* stream) {
  return static_cast<cudaStream_t>(stream->platform_specific_handle().stream);
}

}  // namespace gpu
}  // namespace stream_executor

#endif  // HAVE_CUDA

#endif  // DISTXCEPT_HOROVOD_COMPAT_STREAM_H_

// Horovod 0.28.1 includes the XLA builder under the name it had until TensorFlow 2.17. This header
// stands in the old place and hands out what TensorFlow has now.

#ifndef DISTXCEPT_HOROVOD_COMPAT_XLA_BUILDER_H_
#define DISTXCEPT_HOROVOD_COMPAT_XLA_BUILDER_H_

#include "absl/status/statusor.h"
#include "xla/hlo/builder/xla_builder.h"

namespace xla {

// XLA dropped its own name for the type; Horovod's GPU code still says ::xla::StatusOr.
template <typename T>
using StatusOr = ::absl::StatusOr<T>;

}  // namespace xla

#endif  // DISTXCEPT_HOROVOD_COMPAT_XLA_BUILDER_H_

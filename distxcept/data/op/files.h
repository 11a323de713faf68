/* Files, or ranges of them, through TensorFlow's file systems. Never opens what may not end: FIFOs, devices. */

#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "absl/strings/ascii.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/file_statistics.h"
#include "tensorflow/core/platform/file_system.h"
#include "tensorflow/core/platform/tstring.h"

namespace distxcept {

enum class Found { kContent, kNever, kLater, kNoMemory }; /* kLater: the error may pass by itself */

/* What network file systems and worn disks report and take back a moment later: the list of retry.py. */
inline bool passes(int error) {
    switch (error) {
    case EIO: case EAGAIN: case EINTR: case EBUSY: case ESTALE: case ENFILE: case EMFILE:
    case ETIMEDOUT: case ENETDOWN: case ENETUNREACH: case ENETRESET: case EHOSTDOWN:
    case EHOSTUNREACH: case ECONNABORTED: case ECONNRESET: case ECONNREFUSED: case ESHUTDOWN:
#ifdef EREMOTEIO
    case EREMOTEIO:
#endif
    case ENOLINK:
        return true;
    }
    return false;
}

/* The same errors as TensorFlow's file systems report them. EBUSY and ESHUTDOWN of a local file are a failed
   precondition, as is EISDIR, which cannot come once a regular file has been found. */
inline Found after(const absl::Status &status, bool local) {
    if (status.ok())
        return Found::kContent;
    switch (status.code()) {
    case absl::StatusCode::kUnknown: /* EIO and what has no code of its own */
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted: /* ESTALE */
    case absl::StatusCode::kResourceExhausted: /* EMFILE, ENFILE */
        return Found::kLater;
    case absl::StatusCode::kFailedPrecondition:
        return local ? Found::kLater : Found::kNever;
    default:
        return Found::kNever;
    }
}

/* What tells that a name still stands for the same file. */
struct Identity {
    int64_t length = 0;
    uint64_t device = 0, number = 0;
    int64_t changed = 0;

    bool operator==(const Identity &other) const {
        return length == other.length && device == other.device && number == other.number && changed == other.changed;
    }
};

/* Without a scheme such as gs:// at its start. */
inline bool is_local(const std::string &path) {
    size_t end = 0;
    while (end < path.size() && (absl::ascii_isalpha(path[end]) || (end && (absl::ascii_isdigit(path[end]) || path[end] == '.'))))
        end++;
    return !end || path.compare(end, 3, "://");
}

/* Only a regular file has contents to read. */
inline Found look_at(tsl::Env *env, const std::string &path, Identity *identity) {
    if (is_local(path)) {
        struct stat found;
        if (path.find('\0') != std::string::npos)
            return Found::kNever;
        if (stat(path.c_str(), &found))
            return passes(errno) ? Found::kLater : Found::kNever;
        if (!S_ISREG(found.st_mode))
            return Found::kNever;
        *identity = {(int64_t)found.st_size, (uint64_t)found.st_dev, (uint64_t)found.st_ino, (int64_t)found.st_mtime};
        return Found::kContent;
    }
    tsl::FileStatistics found;
    const absl::Status status = env->Stat(path, &found);
    if (!status.ok())
        return after(status, false);
    *identity = {found.length, 0, 0, found.mtime_nsec};
    return found.is_directory ? Found::kNever : Found::kContent;
}

/* Files that are open for reads of ranges: many samples lie in few shards. The least recently used is closed. */
class OpenFiles {
  public:
    using File = std::shared_ptr<tsl::RandomAccessFile>;

    absl::Status open(tsl::Env *env, const std::string &path, const Identity &identity, bool keep, File *file) {
        if (keep && find(path, identity, file))
            return absl::OkStatus();
        std::unique_ptr<tsl::RandomAccessFile> opened;
        const absl::Status status = env->NewRandomAccessFile(path, &opened);
        *file = std::move(opened);
        if (status.ok() && keep)
            add({path, identity, *file});
        return status;
    }

    /* After an error: a handle may be stale. */
    void forget(const std::string &path) {
        const std::lock_guard<std::mutex> lock(mutex_);
        entries_.remove_if([&](const Entry &entry) { return entry.path == path; });
    }

  private:
    struct Entry {
        std::string path;
        Identity identity;
        File file;
    };
    static constexpr size_t kMost = 64;

    bool find(const std::string &path, const Identity &identity, File *file) {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
            if (entry->path != path)
                continue;
            if (!(entry->identity == identity)) {
                entries_.erase(entry);
                return false;
            }
            *file = entry->file;
            entries_.splice(entries_.begin(), entries_, entry);
            return true;
        }
        return false;
    }

    void add(Entry entry) {
        const std::lock_guard<std::mutex> lock(mutex_);
        entries_.remove_if([&](const Entry &other) { return other.path == entry.path; });
        entries_.push_front(std::move(entry));
        if (entries_.size() > kMost)
            entries_.pop_back();
    }

    std::mutex mutex_;
    std::list<Entry> entries_;
};

/* A length of -1 is to the end of the file. */
inline Found read_range(tsl::Env *env, OpenFiles *files, const std::string &path, int64_t offset, int64_t length,
                        int64_t most, tsl::tstring *content) {
    const bool keep = length >= 0, local = is_local(path);
    Identity identity;
    int64_t wanted = length;
    if (local || !keep) { /* of a shard far away it would cost a request for each sample */
        const Found looked = look_at(env, path, &identity);
        if (looked != Found::kContent)
            return looked;
        if (offset < 0 || offset > identity.length)
            return Found::kNever;
        wanted = keep ? length : identity.length - offset;
        if (wanted > identity.length - offset)
            return Found::kNever;
    }
    if (offset < 0 || wanted > most)
        return Found::kNever;
    /* The string below does not look whether it got its memory. */
    void *room = malloc(wanted + 64);
    if (!room)
        return Found::kNoMemory;
    free(room);
    OpenFiles::File file;
    absl::Status status = files->open(env, path, identity, keep, &file);
    if (!status.ok())
        return after(status, local);
    content->resize_uninitialized(wanted);
    absl::string_view read;
    status = wanted ? file->Read(offset, read, absl::Span<char>(content->mdata(), wanted)) : absl::OkStatus();
    if (!status.ok() && status.code() != absl::StatusCode::kOutOfRange) {
        files->forget(path);
        return after(status, local);
    }
    if (read.size() && read.data() != content->data())
        memmove(content->mdata(), read.data(), read.size());
    content->resize(read.size()); /* a file that became shorter */
    return keep && (int64_t)content->size() != wanted ? Found::kNever : Found::kContent;
}

} // namespace distxcept

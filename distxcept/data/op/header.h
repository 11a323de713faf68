/* What an image file says about itself: the rules of header.py, for whole batches without the interpreter.

   A test compares both on thousands of damaged files. Every read is checked: the contents are not to be trusted. */

#pragma once

#include <cstdint>
#include <cstring>

namespace distxcept {

enum Kind : int32_t { kUnusable, kDirect, kOther }; /* decoded here, or by Pillow */

struct Header {
    int64_t height = 0, width = 0; /* as stored */
    int32_t orientation = 1, kind = kUnusable;

    bool transposed() const { return orientation >= 5; }
    int64_t upright_height() const { return transposed() ? width : height; }
    int64_t upright_width() const { return transposed() ? height : width; }
};

/* Bytes, and reads that fail instead of going beyond them. */
struct Bytes {
    const uint8_t *data;
    size_t size;

    bool has(size_t at, size_t count) const { return at <= size && count <= size - at; }
    bool starts_with(const char *text, size_t count, size_t at = 0) const {
        return has(at, count) && !memcmp(data + at, text, count);
    }
    /* From one place up to another, as far as there are bytes. */
    Bytes slice(size_t from, size_t to) const {
        from = from < size ? from : size, to = to < size ? to : size;
        return {data + from, to > from ? to - from : 0};
    }
    bool number(size_t at, int count, bool big_endian, uint64_t *value) const {
        if (!has(at, count))
            return false;
        *value = 0;
        for (int i = 0; i < count; i++)
            *value |= (uint64_t)data[at + i] << 8 * (big_endian ? count - 1 - i : i);
        return true;
    }
};

/* Orientation of an EXIF block; 1 if it has none or is damaged, as viewers do. */
inline int32_t exif_orientation(Bytes tiff) {
    const bool big = tiff.starts_with("MM\0*", 4);
    uint64_t start, entries, tag = 0, kind = 0, value = 0;
    if (!big && !tiff.starts_with("II*\0", 4))
        return 1;
    if (!tiff.number(4, 4, big, &start) || !tiff.number(start, 2, big, &entries))
        return 1;
    for (uint64_t entry = 0; entry < entries; entry++) {
        const size_t at = start + 2 + 12 * entry;
        if (!tiff.has(at, 10))
            return 1;
        tiff.number(at, 2, big, &tag), tiff.number(at + 2, 2, big, &kind), tiff.number(at + 8, 2, big, &value);
        if (tag == 0x0112 && kind == 3)
            return 1 <= value && value <= 8 ? (int32_t)value : 1;
    }
    return 1;
}

/* Walks the chunks of a PNG or WebP file to its EXIF block, which may stand after the image. */
inline int32_t chunk_orientation(Bytes bytes, size_t at, bool png) {
    uint64_t length;
    while (bytes.number(at + (png ? 0 : 4), 4, png, &length) && bytes.has(at, 8)) {
        if (bytes.starts_with(png ? "eXIf" : "EXIF", 4, at + (png ? 4 : 0))) {
            Bytes block = bytes.slice(at + 8, at + 8 + length);
            return exif_orientation(block.starts_with("Exif\0\0", 6) ? block.slice(6, block.size) : block);
        }
        at += 8 + length + (png ? 4 : length % 2); /* a checksum, or padding to an even length */
    }
    return 1;
}

/* Walks the markers up to the frame header; an EXIF block always stands before it. */
inline bool read_jpeg(Bytes bytes, Header *header) {
    size_t at = 2;
    for (;;) {
        if (at >= bytes.size || bytes.data[at] != 0xFF)
            return false;
        while (at < bytes.size && bytes.data[at] == 0xFF)
            at++;
        if (at >= bytes.size)
            return false;
        const int marker = bytes.data[at++];
        if (marker == 0x01 || (0xD0 <= marker && marker <= 0xD8))
            continue; /* they stand alone */
        uint64_t length, height, width, components;
        if (marker == 0xD9 || marker == 0xDA || !bytes.number(at, 2, true, &length) || length < 2)
            return false;
        if (0xC0 <= marker && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC) {
            if (!bytes.number(at + 3, 2, true, &height) || !bytes.number(at + 5, 2, true, &width) ||
                !bytes.number(at + 7, 1, true, &components))
                return false;
            header->height = height, header->width = width;
            header->kind = components == 1 || components == 3 ? kDirect : kOther;
            /* Decoding a window stops early and would take a truncated file for a whole one, now and then. */
            for (size_t end = bytes.size - 1; end > at; end--)
                if (bytes.data[end] == 0xD9 && bytes.data[end - 1] == 0xFF)
                    return true;
            return false;
        }
        if (marker == 0xE1 && bytes.starts_with("Exif\0\0", 6, at + 2))
            header->orientation = exif_orientation(bytes.slice(at + 8, at + length));
        at += length;
    }
}

inline bool read_webp(Bytes bytes, Header *header) {
    uint64_t first = 0, second = 0;
    if (bytes.starts_with("VP8X", 4, 12)) {
        for (int k = 0; k < 2; k++) {
            const Bytes part = bytes.slice(24 + 3 * k, 27 + 3 * k);
            part.number(0, (int)part.size, false, k ? &second : &first);
        }
        header->width = first + 1, header->height = second + 1;
        header->orientation = chunk_orientation(bytes, 12, false);
        return true;
    }
    if (bytes.starts_with("VP8L", 4, 12)) {
        if (!bytes.number(21, 4, false, &first))
            return false;
        header->width = (first & 0x3FFF) + 1, header->height = (first >> 14 & 0x3FFF) + 1;
        return true;
    }
    if (!bytes.number(26, 2, false, &first) || !bytes.number(28, 2, false, &second))
        return false;
    header->width = first & 0x3FFF, header->height = second & 0x3FFF;
    return true;
}

inline bool read_bmp(Bytes bytes, Header *header) {
    uint64_t size, width, height;
    if (!bytes.number(14, 4, false, &size))
        return false;
    const int count = size == 12 ? 2 : 4;
    if (!bytes.number(18, count, false, &width) || !bytes.number(18 + count, count, false, &height))
        return false;
    const int64_t signed_width = count == 4 ? (int32_t)width : (int64_t)width;
    const int64_t signed_height = count == 4 ? (int32_t)height : (int64_t)height;
    header->width = signed_width < 0 ? -signed_width : signed_width;
    header->height = signed_height < 0 ? -signed_height : signed_height;
    return true;
}

inline bool read_fixed(Bytes bytes, size_t at, int count, bool big_endian, Header *header) {
    uint64_t width, height;
    if (!bytes.number(at, count, big_endian, &width) || !bytes.number(at + count, count, big_endian, &height))
        return false;
    header->width = width, header->height = height;
    return true;
}

constexpr size_t kRawHeader = 12;
constexpr int64_t kMostBytes = INT32_MAX; /* the JPEG decoder counts bytes in 32 bits */

/* Raw pixels: "DXRW", height, width, then the pixels, and nothing else. */
inline bool read_raw(Bytes bytes, Header *header) {
    uint64_t height, width;
    if (!bytes.starts_with("DXRW", 4) || !bytes.number(4, 4, false, &height) || !bytes.number(8, 4, false, &width))
        return false;
    if (!height || !width || height > INT32_MAX || width > INT32_MAX)
        return false;
    const uint64_t rest = bytes.size - kRawHeader, row = 3 * width;
    if (rest % row || rest / row != height)
        return false;
    header->height = height, header->width = width, header->kind = kDirect;
    return true;
}

inline bool read_any(Bytes bytes, Header *header) {
    header->kind = kOther;
    if (bytes.starts_with("\xff\xd8", 2))
        return read_jpeg(bytes, header);
    if (bytes.starts_with("\x89PNG\r\n\x1a\n", 8)) {
        header->orientation = chunk_orientation(bytes, 8, true);
        return read_fixed(bytes, 16, 4, true, header);
    }
    if (bytes.starts_with("GIF8", 4))
        return read_fixed(bytes, 6, 2, false, header);
    if (bytes.starts_with("BM", 2))
        return read_bmp(bytes, header);
    return bytes.starts_with("RIFF", 4) && bytes.starts_with("WEBP", 4, 8) && read_webp(bytes, header);
}

/* The header of what can be used; else one without pixels. */
inline Header inspect(const char *data, size_t size, bool raw, int64_t max_pixels) {
    const Bytes bytes = {(const uint8_t *)data, size};
    Header header;
    if (raw)
        return read_raw(bytes, &header) ? header : Header();
    if (size > (uint64_t)kMostBytes || !read_any(bytes, &header) || header.width < 1 || header.height < 1)
        return Header();
    if (header.width > INT32_MAX || header.height > INT32_MAX || header.width * header.height > max_pixels)
        return Header();
    return header;
}

} // namespace distxcept

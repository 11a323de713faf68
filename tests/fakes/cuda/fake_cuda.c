/* A stand-in for NVIDIA's libcuda.so.1, for tests: the cards that this process may use, and their memory.
 *
 * CUDA_VISIBLE_DEVICES="2,0" shows card 2 as device 0 and card 0 as device 1, as the real one does; "MIG-1" shows slice 1
 * of card 0. Without the variable there is no device. FAKE_CUDA_NO_DEVICE: CUDA does not start.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201 };

static const size_t GIB = (size_t)1 << 30;

static int started, current;

struct shown { int card, slice; };

/* The device with this number; 0 where there is none. */
static int find(int number, struct shown *shown) {
    const char *entry = getenv("CUDA_VISIBLE_DEVICES");
    for (; entry && *entry; entry = strchr(entry, ',') ? strchr(entry, ',') + 1 : NULL) {
        if (number-- > 0) continue;
        shown->slice = -1;
        if (sscanf(entry, "MIG-%d", &shown->slice) == 1) {
            shown->card = 0;
            return 1;
        }
        return sscanf(entry, "%d", &shown->card) == 1 && shown->card >= 0;
    }
    return 0;
}

int cuInit(unsigned int flags) {
    (void)flags;
    started = 1;
    return getenv("FAKE_CUDA_NO_DEVICE") ? NO_DEVICE : SUCCESS;
}

int cuDeviceGetCount(int *count) {
    struct shown shown;
    if (!started) return NOT_INITIALIZED;
    for (*count = 0; find(*count, &shown); ++*count) {}
    return SUCCESS;
}

int cuDeviceGet(int *device, int number) {
    struct shown shown;
    if (!started) return NOT_INITIALIZED;
    if (number < 0 || !find(number, &shown)) return INVALID_DEVICE;
    *device = number;
    return SUCCESS;
}

int cuDeviceGetPCIBusId(char *bus_id, int length, int device) {
    struct shown shown;
    if (!started) return NOT_INITIALIZED;
    if (!find(device, &shown)) return INVALID_DEVICE;
    snprintf(bus_id, length, "0000:%02X:00.0", 1 + shown.card);
    return SUCCESS;
}

/* As fake_nvml.c counts: 0000…-000C for card C, 0000…-0001-…S for slice S. */
int cuDeviceGetUuid_v2(unsigned char uuid[16], int device) {
    struct shown shown;
    if (!started) return NOT_INITIALIZED;
    if (!find(device, &shown)) return INVALID_DEVICE;
    memset(uuid, 0, 16);
    uuid[9] = shown.slice >= 0;
    uuid[15] = shown.slice >= 0 ? shown.slice : shown.card;
    return SUCCESS;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    struct shown shown;
    if (!find(device, &shown)) return INVALID_DEVICE;
    *context = (void *)((long)device + 1);
    return SUCCESS;
}

int cuCtxSetCurrent(void *context) {
    current = context != NULL;
    return current ? SUCCESS : INVALID_CONTEXT;
}

int cuMemGetInfo_v2(size_t *free, size_t *total) {
    if (!current) return INVALID_CONTEXT;
    *free = 30 * GIB;
    *total = 40 * GIB;
    return SUCCESS;
}

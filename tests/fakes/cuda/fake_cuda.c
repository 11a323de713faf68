/* A stand-in for NVIDIA's libcuda.so.1, for tests: where on the PCI bus the cards are that this process may use.
 * CUDA_VISIBLE_DEVICES="2,0" shows card 2 as device 0 and card 0 as device 1, as the real one does.
 */
#include <stdio.h>
#include <stdlib.h>

enum { SUCCESS = 0, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101 };

static int started;

int cuInit(unsigned int flags) {
    (void)flags;
    started = 1;
    return getenv("FAKE_CUDA_NO_DEVICE") ? NO_DEVICE : SUCCESS;
}

int cuDeviceGetPCIBusId(char *bus_id, int length, int device) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int first, second;
    if (!started) return NOT_INITIALIZED;
    if (!visible || sscanf(visible, "%d,%d", &first, &second) != 2 || device < 0 || device > 1) return INVALID_DEVICE;
    snprintf(bus_id, length, "0000:%02X:00.0", 1 + (device == 0 ? first : second));
    return SUCCESS;
}

/* A stand-in for NVIDIA's libnvidia-ml.so.1, for tests: the functions that distxcept calls, with the interface
 * of NVML (names, argument order, error codes and struct layouts as nvidia-ml-py declares them).
 *
 * FAKE_NVML_SCENARIO chooses what it says: healthy (default), full, lost, lost_later, mismatch, no_driver,
 * old_driver, minor_driver, hot, old_card, new_card, ptx_card, shared_memory, mig, bare. Every scenario with cards has two of them;
 * eight has eight. lost_after_N: the second card is lost from the Nth question for its memory on. mig: card 0 is divided
 * into two slices. nvlink, p2p: what joins the cards.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SUCCESS = 0,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    GPU_IS_LOST = 15,
    VERSION_MISMATCH = 18
};

static const unsigned long long GIB = 1ULL << 30;
static const unsigned int OTHER_PID = 4242;

struct memory { unsigned long long total, free, used; };
struct utilization { unsigned int gpu, memory; };
struct process { unsigned int pid; unsigned long long used; unsigned int gpu_instance, compute_instance; };

static int scenario_is(const char *name) {
    const char *chosen = getenv("FAKE_NVML_SCENARIO");
    return strcmp(chosen ? chosen : "healthy", name) == 0;
}

static int cards(void) { return scenario_is("bare") ? 0 : scenario_is("eight") ? 8 : 2; }

/* A handle is the card's number plus one, so that none of them is a null pointer. */
static int card_of(void *device) { return (int)((long)device - 1); }

static int lost(void *device) {
    static int questions;
    const char *chosen = getenv("FAKE_NVML_SCENARIO");
    int last;
    if (card_of(device) != 1) return 0;
    if (chosen && sscanf(chosen, "lost_after_%d", &last) == 1) return ++questions > last;
    return scenario_is("lost_later");
}

/* Handles of slices begin here. */
enum { FIRST_SLICE = 100, SLICES = 2 };

static int slice_of(void *device) { return (long)device >= FIRST_SLICE ? (int)((long)device - FIRST_SLICE) : -1; }

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    if (scenario_is("no_driver")) return DRIVER_NOT_LOADED;
    if (scenario_is("mismatch")) return VERSION_MISMATCH;
    return SUCCESS;
}

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) { (void)code; return "fake error"; }

int nvmlSystemGetDriverVersion(char *text, unsigned int length) {
    const char *version = "570.86.10";
    if (scenario_is("old_driver")) version = "470.199.02";
    if (scenario_is("minor_driver")) version = "525.147.05";
    snprintf(text, length, "%s", version);
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = 12080;
    if (scenario_is("old_driver")) *version = 11040;
    if (scenario_is("minor_driver")) *version = 12000;
    return SUCCESS;
}

int nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length) {
    if (pid != OTHER_PID) return NOT_FOUND;
    snprintf(name, length, "/usr/bin/other-trainer --password=hunter2");
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = cards();
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
    if (scenario_is("lost") && index == 1) return GPU_IS_LOST;
    if ((int)index >= cards()) return NOT_FOUND;
    *device = (void *)((long)index + 1);
    return SUCCESS;
}

/* Cards sit at 0000:01:00.0, 0000:02:00.0 and so on. */
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device) {
    unsigned int domain, bus;
    if (sscanf(bus_id, "%x:%x:00.0", &domain, &bus) != 2 || bus < 1 || (int)bus > cards()) return NOT_FOUND;
    if (scenario_is("lost") && bus == 2) return GPU_IS_LOST;
    *device = (void *)(long)bus;
    return SUCCESS;
}

int nvmlDeviceGetIndex(void *device, unsigned int *index) {
    *index = card_of(device);
    return SUCCESS;
}

int nvmlDeviceGetMigMode(void *device, unsigned int *current, unsigned int *pending) {
    *current = *pending = scenario_is("mig") && card_of(device) == 0;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned int *count) {
    (void)device;
    *count = 7;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned int index, void **slice) {
    if (!scenario_is("mig") || card_of(device) != 0 || index >= SLICES) return NOT_FOUND;
    *slice = (void *)(long)(FIRST_SLICE + index);
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int length) {
    if (slice_of(device) >= 0) {
        snprintf(uuid, length, "MIG-00000000-0000-0000-0001-00000000000%d", slice_of(device));
        return SUCCESS;
    }
    snprintf(uuid, length, "GPU-00000000-0000-0000-0000-00000000000%d", card_of(device));
    return SUCCESS;
}

int nvmlDeviceGetName(void *device, char *name, unsigned int length) {
    const char *whole = scenario_is("old_card") ? "Fake K80" : scenario_is("new_card") ? "Fake RTX 5090"
                      : scenario_is("ptx_card") ? "Fake H100" : "Fake A100";
    snprintf(name, length, slice_of(device) >= 0 ? "%s MIG 1g.5gb" : "%s", whole);
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    (void)device;
    *major = scenario_is("old_card") ? 3 : scenario_is("new_card") ? 12 : scenario_is("ptx_card") ? 9 : 8;
    *minor = scenario_is("old_card") ? 7 : 0;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    if (lost(device)) return GPU_IS_LOST;
    if (scenario_is("shared_memory")) return NOT_SUPPORTED;
    if (scenario_is("mig") && slice_of(device) < 0 && card_of(device) == 0) return NO_PERMISSION;
    if (slice_of(device) >= 0) {
        memory->total = 5 * GIB;
        memory->used = slice_of(device) * GIB;
        memory->free = memory->total - memory->used;
        return SUCCESS;
    }
    memory->total = 40 * GIB;
    memory->used = scenario_is("full") && card_of(device) == 0 ? 39 * GIB : GIB / 2;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, struct process *processes) {
    if (!scenario_is("full") || card_of(device) != 0) {
        *count = 0;
        return SUCCESS;
    }
    if (*count < 1) {
        *count = 1;
        return INSUFFICIENT_SIZE;
    }
    *count = 1;
    processes[0].pid = OTHER_PID;
    processes[0].used = 38 * GIB;
    processes[0].gpu_instance = processes[0].compute_instance = 0xffffffffu;
    return SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned int *count, struct process *processes) {
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, processes);
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned int *celsius) {
    (void)sensor;
    *celsius = scenario_is("hot") && card_of(device) == 0 ? 93 : 41;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned int *milliwatts) {
    (void)device;
    *milliwatts = 61500;
    return SUCCESS;
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned int *milliwatts) {
    (void)device;
    *milliwatts = 400000;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(void *device, int type, unsigned int *mhz) {
    *mhz = type == 2 ? 1215 : scenario_is("hot") && card_of(device) == 0 ? 705 : 1380;
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(void *device, int type, unsigned int *mhz) {
    (void)device;
    *mhz = type == 2 ? 1215 : 1410;
    return SUCCESS;
}

/* Under this name in drivers of all ages; the newer one is left out, so that the way back to this one is used too. */
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
    *reasons = scenario_is("hot") && card_of(device) == 0 ? 0x28 : 0x1;
    return SUCCESS;
}

/* nvlink: NVLink joins all cards. p2p: PCIe does, without the host. Otherwise the host is between them. */
int nvmlDeviceGetP2PStatus(void *first, void *second, int over, int *status) {
    (void)first;
    (void)second;
    *status = (scenario_is("nvlink") && over == 2) || (scenario_is("p2p") && over == 0) ? 0 : 5;
    return SUCCESS;
}

/* A common PCIe host bridge. */
int nvmlDeviceGetTopologyCommonAncestor(void *first, void *second, int *level) {
    if (scenario_is("lost_later")) return GPU_IS_LOST;
    *level = first == second ? 0 : 30;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *device, struct utilization *utilization) {
    (void)device;
    utilization->gpu = 7;
    utilization->memory = 3;
    return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *count) {
    (void)type;
    (void)counter;
    if (card_of(device) == 1) return NOT_SUPPORTED;
    *count = scenario_is("hot") ? 3 : 0;
    return SUCCESS;
}

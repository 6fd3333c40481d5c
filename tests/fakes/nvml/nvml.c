/* A stand-in for libnvidia-ml.so.1: NVML's ABI, answered from a text file.
 *
 * $FAKE_NVML_STATE names a file of "key=value" lines. It is read again whenever it was replaced, so
 * a test changes the hardware by renaming a new file over it. Rules:
 *   no file, or no `count`          no driver: nvmlInit fails with DRIVER_NOT_LOADED (9)
 *   a key is missing                NOT_SUPPORTED (3), as on hardware without the feature
 *   a value is `!CODE`              that reading fails with the code
 *   gpu.N.error=CODE                every call on GPU N fails with it
 *   call.NAME.error=CODE            that entry point fails;  call.NAME.delay_ms=N: it blocks first
 * Struct layouts are those of pynvml on 64-bit Linux. -DOLD_DRIVER leaves out what drivers before
 * 510 lack: MemoryInfo_v2, RunningProcesses_v3, TemperatureV, ClocksEventReasons.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
typedef int code_t;
typedef unsigned int u32;
typedef unsigned long long u64;
enum {
    OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, VERSION_MISMATCH = 25
};
enum { MAX_GPUS = 16, MAX_MIG = 7, MAX_CALLS = 128, XID_EVENT = 8 };

typedef struct { int gpu, mig; } device_t;            /* mig -1: the GPU itself */
static device_t devices[MAX_GPUS][MAX_MIG + 1];       /* [gpu][0] the GPU, [gpu][1 + i] MIG i */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* guards all that follows */
static int references;
static struct { const char *name; u64 count; } calls[MAX_CALLS];
static char *state;                                   /* the file's text after a newline, or NULL */
static struct stat seen;

/* ---- the state file ----------------------------------------------------------------------- */

static void forget(void) {
    free(state);
    state = NULL;
    memset(&seen, 0, sizeof seen);
}

static void refresh(void) {
    const char *path = getenv("FAKE_NVML_STATE");
    struct stat now;
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) { forget(); return; }
    if (!fstat(file, &now) &&
        (!state || now.st_ino != seen.st_ino || now.st_mtim.tv_nsec != seen.st_mtim.tv_nsec)) {
        size_t size = (size_t)now.st_size, done = 0;
        ssize_t got;
        forget();
        state = malloc(size + 2);
        state[0] = '\n';
        while (done < size && (got = read(file, state + 1 + done, size - done)) > 0)
            done += (size_t)got;
        state[1 + done] = 0;
        seen = now;
    }
    close(file);
}

__attribute__((format(printf, 3, 4)))
static int lookup(char *out, size_t size, const char *format, ...) {
    char key[160] = "\n", *at;
    size_t length;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key + 1, sizeof key - 2, format, arguments);
    va_end(arguments);
    strcat(key, "=");
    if (!state || !(at = strstr(state, key))) return 0;
    at += strlen(key);
    length = strcspn(at, "\r\n");
    if (length >= size) length = size - 1;
    memcpy(out, at, length);
    out[length] = 0;
    return 1;
}

static code_t text_of(const char *key, char *out, u32 size) {
    char value[256];
    if (!lookup(value, sizeof value, "%s", key)) return NOT_SUPPORTED;
    if (value[0] == '!') return atoi(value + 1);
    if (strlen(value) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return OK;
}

static code_t number_of(const char *key, u64 *out) {
    char value[64];
    code_t code = text_of(key, value, sizeof value);
    if (code) return code;
    *out = strtoull(value, NULL, 0);
    return OK;
}

static void key_of(const device_t *device, const char *field, char *key, size_t size) {
    if (device->mig < 0) snprintf(key, size, "gpu.%d.%s", device->gpu, field);
    else snprintf(key, size, "gpu.%d.mig.%d.%s", device->gpu, device->mig, field);
}

static code_t device_text(const device_t *device, const char *field, char *out, u32 size) {
    char key[128];
    key_of(device, field, key, sizeof key);
    return text_of(key, out, size);
}

static code_t device_number(const device_t *device, const char *field, u64 *out) {
    char key[128];
    key_of(device, field, key, sizeof key);
    return number_of(key, out);
}

/* ---- what every entry point does first: count itself, wait, and hold the lock to its end ---- */

static code_t enter(const char *name) {
    char value[32];
    for (int i = 0; i < MAX_CALLS; i++)
        if (!calls[i].name || !strcmp(calls[i].name, name)) {
            calls[i].name = name;
            calls[i].count++;
            break;
        }
    refresh();
    if (lookup(value, sizeof value, "call.%s.delay_ms", name)) {
        pthread_mutex_unlock(&lock);
        usleep((useconds_t)atoi(value) * 1000);
        pthread_mutex_lock(&lock);
        refresh();
    }
    return lookup(value, sizeof value, "call.%s.error", name) ? atoi(value) : OK;
}

static code_t enter_library(const char *name) {
    code_t code = enter(name);
    return !code && !references ? UNINITIALIZED : code;
}

static code_t enter_device(const char *name, const device_t *device) {
    char value[32];
    code_t code = enter_library(name);
    if (code) return code;
    if (device < &devices[0][0] || device > &devices[MAX_GPUS - 1][MAX_MIG]) return INVALID_ARGUMENT;
    return lookup(value, sizeof value, "gpu.%d.error", device->gpu) ? atoi(value) : OK;
}

static void unlock(pthread_mutex_t **held) { pthread_mutex_unlock(*held); }
#define TRY(call) do { code_t code_ = (call); if (code_) return code_; } while (0)
#define HOLD \
    pthread_mutex_t *held __attribute__((cleanup(unlock))) = &lock; \
    pthread_mutex_lock(held)
#define ENTER HOLD; TRY(enter_library(__func__))
#define ENTER_DEVICE(device) HOLD; TRY(enter_device(__func__, device))

#define NUMBER(name, type, field) \
    API code_t name(device_t *device, type *out) { \
        u64 value; \
        ENTER_DEVICE(device); \
        TRY(device_number(device, field, &value)); \
        *out = (type)value; \
        return OK; \
    }
#define TEXT(name, field) \
    API code_t name(device_t *device, char *out, u32 size) { \
        ENTER_DEVICE(device); \
        return device_text(device, field, out, size); \
    }

/* ---- library -------------------------------------------------------------------------------- */

/* For tests: how often an entry point ran; NULL: all of them. */
API u64 fake_nvml_calls(const char *name) {
    u64 sum = 0;
    HOLD;
    for (int i = 0; i < MAX_CALLS && calls[i].name; i++)
        if (!name || !strcmp(calls[i].name, name)) sum += calls[i].count;
    return sum;
}

/* For tests: initialisations that were not shut down. */
API int fake_nvml_references(void) {
    HOLD;
    return references;
}

API code_t nvmlInitWithFlags(u32 flags) {
    u64 count;
    code_t code;
    (void)flags;
    HOLD;
    TRY(enter(__func__));
    if ((code = number_of("count", &count))) return code == NOT_SUPPORTED ? DRIVER_NOT_LOADED : code;
    for (int gpu = 0; gpu < MAX_GPUS; gpu++)
        for (int mig = 0; mig <= MAX_MIG; mig++) devices[gpu][mig] = (device_t){gpu, mig - 1};
    references++;
    return OK;
}

API code_t nvmlShutdown(void) {
    ENTER;
    references--;
    return OK;
}

API const char *nvmlErrorString(code_t code) { return code ? "fake NVML error" : "Success"; }

API code_t nvmlSystemGetDriverVersion(char *out, u32 size) {
    ENTER;
    return text_of("driver_version", out, size);
}

API code_t nvmlSystemGetNVMLVersion(char *out, u32 size) {
    ENTER;
    return text_of("nvml_version", out, size);
}

API code_t nvmlSystemGetCudaDriverVersion(int *out) {
    u64 value;
    ENTER;
    TRY(number_of("cuda_driver_version", &value));
    *out = (int)value;
    return OK;
}

/* ---- devices -------------------------------------------------------------------------------- */

API code_t nvmlDeviceGetCount_v2(u32 *out) {
    u64 value;
    ENTER;
    TRY(number_of("count", &value));
    *out = (u32)value;
    return OK;
}

API code_t nvmlDeviceGetHandleByIndex_v2(u32 index, device_t **out) {
    u64 count;
    char value[32];
    ENTER;
    TRY(number_of("count", &count));
    if (index >= count || index >= MAX_GPUS) return INVALID_ARGUMENT;
    if (lookup(value, sizeof value, "gpu.%u.error", index)) return atoi(value);
    *out = &devices[index][0];
    return OK;
}

TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetUUID, "uuid")

typedef struct {
    char legacy_bus_id[16];
    u32 domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} pci_t;

API code_t nvmlDeviceGetPciInfo_v3(device_t *device, pci_t *out) {
    ENTER_DEVICE(device);
    memset(out, 0, sizeof *out);
    return device_text(device, "pci_bus_id", out->bus_id, sizeof out->bus_id);
}

/* ---- memory --------------------------------------------------------------------------------- */

typedef struct { u64 total, free, used; } memory_v1_t;
typedef struct { u32 version; u64 total, reserved, free, used; } memory_v2_t;

static code_t memory_of(device_t *device, memory_v2_t *out) {
    TRY(device_number(device, "memory.total", &out->total));
    TRY(device_number(device, "memory.used", &out->used));
    if (device_number(device, "memory.reserved", &out->reserved)) out->reserved = 0;
    out->free = out->total - out->used - out->reserved;
    return OK;
}

API code_t nvmlDeviceGetMemoryInfo(device_t *device, memory_v1_t *out) {
    memory_v2_t memory;
    ENTER_DEVICE(device);
    TRY(memory_of(device, &memory));
    *out = (memory_v1_t){memory.total, memory.free, memory.used + memory.reserved};
    return OK;
}

#ifndef OLD_DRIVER
API code_t nvmlDeviceGetMemoryInfo_v2(device_t *device, memory_v2_t *out) {
    ENTER_DEVICE(device);
    if (out->version != (2u << 24 | sizeof *out)) return VERSION_MISMATCH;
    return memory_of(device, out);
}
#endif

/* gpu.N.processes=PID:BYTES,PID:none,...   none: not available */
typedef struct { u32 pid; u64 used; u32 gpu_instance, compute_instance; } process_t;

static code_t processes_of(device_t *device, u32 *count, process_t *out) {
    char value[4096], *rest, *entry;
    u32 number = 0, room = *count;
    code_t code = device_text(device, "processes", value, sizeof value);
    *count = 0;
    if (code) return code;
    for (entry = strtok_r(value, ",", &rest); entry; entry = strtok_r(NULL, ",", &rest), number++) {
        char *used = strchr(entry, ':') + 1;
        if (out && number < room)
            out[number] = (process_t){
                (u32)strtoul(entry, NULL, 0),
                strcmp(used, "none") ? strtoull(used, NULL, 0) : ~0ULL, ~0u, ~0u};
    }
    *count = number;
    return number > room ? INSUFFICIENT_SIZE : OK;
}

API code_t nvmlDeviceGetComputeRunningProcesses_v2(device_t *device, u32 *count, process_t *out) {
    ENTER_DEVICE(device);
    return processes_of(device, count, out);
}

#ifndef OLD_DRIVER
API code_t nvmlDeviceGetComputeRunningProcesses_v3(device_t *device, u32 *count, process_t *out) {
    ENTER_DEVICE(device);
    return processes_of(device, count, out);
}
#endif

/* ---- sensors -------------------------------------------------------------------------------- */

typedef struct { u32 gpu, memory; } utilization_t;

API code_t nvmlDeviceGetUtilizationRates(device_t *device, utilization_t *out) {
    u64 gpu, memory;
    ENTER_DEVICE(device);
    TRY(device_number(device, "utilization.gpu", &gpu));
    TRY(device_number(device, "utilization.memory", &memory));
    *out = (utilization_t){(u32)gpu, (u32)memory};
    return OK;
}

API code_t nvmlDeviceGetTemperature(device_t *device, int sensor, u32 *out) {
    u64 value;
    ENTER_DEVICE(device);
    if (sensor) return INVALID_ARGUMENT;
    TRY(device_number(device, "temperature", &value));
    *out = (u32)value;
    return OK;
}

#ifndef OLD_DRIVER
typedef struct { u32 version; int sensor, celsius; } temperature_t;

API code_t nvmlDeviceGetTemperatureV(device_t *device, temperature_t *out) {
    u64 value;
    ENTER_DEVICE(device);
    if (out->version != (1u << 24 | sizeof *out)) return VERSION_MISMATCH;
    TRY(device_number(device, "temperature", &value));
    out->celsius = (int)value;
    return OK;
}

NUMBER(nvmlDeviceGetCurrentClocksEventReasons, u64, "clocks_event_reasons")
#endif
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, u64, "clocks_event_reasons")
NUMBER(nvmlDeviceGetPowerUsage, u32, "power_mw")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, u32, "power_limit_mw")
NUMBER(nvmlDeviceGetTotalEnergyConsumption, u64, "energy_mj")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, u32, "pcie.lanes")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, u32, "pcie.generation")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, u32, "pcie.lanes.max")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, u32, "pcie.generation.max")

API code_t nvmlDeviceGetClockInfo(device_t *device, int type, u32 *out) {
    static const char *const fields[] = {"clock.graphics", "clock.sm", "clock.memory", "clock.video"};
    u64 value;
    ENTER_DEVICE(device);
    if (type < 0 || type > 3) return INVALID_ARGUMENT;
    TRY(device_number(device, fields[type], &value));
    *out = (u32)value;
    return OK;
}

API code_t nvmlDeviceGetPcieThroughput(device_t *device, int counter, u32 *out) {
    ENTER_DEVICE(device);
    (void)counter;
    usleep(20000);                                    /* the real call samples for 20 ms */
    *out = 0;
    return OK;
}

API code_t nvmlDeviceGetTotalEccErrors(device_t *device, int type, int counter, u64 *out) {
    ENTER_DEVICE(device);
    if (counter) return NOT_SUPPORTED;
    return device_number(device, type ? "ecc.uncorrected" : "ecc.corrected", out);
}

API code_t nvmlDeviceGetRemappedRows(device_t *device, u32 *correctable, u32 *uncorrectable,
                                     u32 *pending, u32 *failed) {
    static const char *const fields[] = {"remapped.correctable", "remapped.uncorrectable",
                                         "remapped.pending", "remapped.failed"};
    u32 *const outs[] = {correctable, uncorrectable, pending, failed};
    ENTER_DEVICE(device);
    for (int i = 0; i < 4; i++) {
        u64 value;
        TRY(device_number(device, fields[i], &value));
        *outs[i] = (u32)value;
    }
    return OK;
}

/* gpu.N.field.ID=NUMBER; the call succeeds as a whole, each field has its own code */
typedef struct { u32 id, scope; int64_t timestamp, latency; int type, code; u64 value; } field_t;

API code_t nvmlDeviceGetFieldValues(device_t *device, int count, field_t *fields) {
    ENTER_DEVICE(device);
    for (int i = 0; i < count; i++) {
        char field[48];
        snprintf(field, sizeof field, "field.%u", fields[i].id);
        fields[i].type = 3;                           /* unsigned long long */
        fields[i].value = 0;
        fields[i].code = device_number(device, field, &fields[i].value);
    }
    return OK;
}

/* ---- MIG: gpu.N.mig_mode=1, gpu.N.mig.I.uuid=..., gpu.N.mig.I.instance=... ------------------- */

API code_t nvmlDeviceGetMigMode(device_t *device, u32 *current, u32 *pending) {
    u64 value;
    ENTER_DEVICE(device);
    TRY(device_number(device, "mig_mode", &value));
    *current = *pending = (u32)value;
    return OK;
}

API code_t nvmlDeviceGetMigDeviceHandleByIndex(device_t *device, u32 index, device_t **out) {
    char uuid[96];
    ENTER_DEVICE(device);
    if (device->mig >= 0 || index >= MAX_MIG) return INVALID_ARGUMENT;
    if (device_text(&devices[device->gpu][index + 1], "uuid", uuid, sizeof uuid)) return NOT_FOUND;
    *out = &devices[device->gpu][index + 1];
    return OK;
}

NUMBER(nvmlDeviceGetGpuInstanceId, u32, "instance")

/* ---- events: event.SEQ=GPU:XID, SEQ from 1; those there at registration are lost ------------- */

typedef struct { u64 gpus, next; int changes; } event_set_t;   /* changes: inotify of the folder */
typedef struct { device_t *device; u64 type, data; u32 gpu_instance, compute_instance; } event_t;

API code_t nvmlEventSetCreate(event_set_t **out) {
    char path[4096];
    ENTER;
    snprintf(path, sizeof path, "%s", getenv("FAKE_NVML_STATE"));
    *out = calloc(1, sizeof **out);
    (*out)->changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    inotify_add_watch((*out)->changes, dirname(path), IN_MOVED_TO);
    return OK;
}

API code_t nvmlEventSetFree(event_set_t *set) {
    ENTER;
    close(set->changes);
    free(set);
    return OK;
}

API code_t nvmlDeviceRegisterEvents(device_t *device, u64 types, event_set_t *set) {
    char value[64];
    ENTER_DEVICE(device);
    if (lookup(value, sizeof value, "gpu.%d.events", device->gpu)) return atoi(value + 1);
    if (!(types & XID_EVENT)) return NOT_SUPPORTED;
    set->gpus |= 1ULL << device->gpu;
    if (!set->next)
        for (set->next = 1; lookup(value, sizeof value, "event.%llu", set->next);) set->next++;
    return OK;
}

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Sleeps in the kernel like the real one; the lock is free meanwhile. */
static void wait_for_change(int changes, long ms) {
    char events[4096];
    struct pollfd readable = {changes, POLLIN, 0};
    pthread_mutex_unlock(&lock);
    if (poll(&readable, 1, (int)ms) > 0)
        while (read(changes, events, sizeof events) > 0) { }
    pthread_mutex_lock(&lock);
}

API code_t nvmlEventSetWait_v2(event_set_t *set, event_t *out, u32 timeout_ms) {
    char value[64];
    long end = now_ms() + timeout_ms, left;
    ENTER;
    for (;;) {
        while (set->next && lookup(value, sizeof value, "event.%llu", set->next)) {
            int gpu = atoi(value);
            set->next++;
            if (gpu < 0 || gpu >= MAX_GPUS || !(set->gpus >> gpu & 1)) continue;
            *out = (event_t){&devices[gpu][0], XID_EVENT,
                             strtoull(strchr(value, ':') + 1, NULL, 0), ~0u, ~0u};
            return OK;
        }
        if ((left = end - now_ms()) <= 0) return TIMEOUT;
        wait_for_change(set->changes, left);
        refresh();
    }
}

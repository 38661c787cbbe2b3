/* What a process holds, to see that nothing grows. */
#define _GNU_SOURCE
#include "tests/faults/figures.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/process.h"

enum { MEASURE_MS = 10000 };

static const char *const tunables = "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1";

/* Of the sanitizers, which have an allocator of their own; NULL without them. */
extern size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

void figures_exact(char **arguments)
{
    const char *set = getenv("GLIBC_TUNABLES");
    if (set != NULL && strcmp(set, tunables) == 0)
        return;
    setenv("GLIBC_TUNABLES", tunables, 1);
    execv("/proc/self/exe", arguments);
}

static long bytes_in_use(void)
{
    if (__sanitizer_get_current_allocated_bytes != NULL)
        return (long)__sanitizer_get_current_allocated_bytes();
    const struct mallinfo2 info = mallinfo2();
    return (long)(info.uordblks + info.hblkhd);
}

struct figures figures_measure(void)
{
    return (struct figures){.bytes = bytes_in_use(),
                            .threads = process_threads(),
                            .descriptors = process_descriptors(),
                            .mappings = process_mappings(),
                            .resident_kb = process_resident_kb()};
}

static struct figures limits(struct figures before, int rounds, struct figures more)
{
    const bool sanitized = __sanitizer_get_current_allocated_bytes != NULL;
    /* A sanitizer keeps what was freed. */
    const long mappings = sanitized ? 1000000 : 32, resident_kb = sanitized ? 1000000 : 4096;
    return (struct figures){.bytes = before.bytes + 4096 + rounds + more.bytes,
                            .threads = before.threads + 2 + more.threads,
                            .descriptors = before.descriptors + more.descriptors,
                            .mappings = before.mappings + mappings + more.mappings,
                            .resident_kb = before.resident_kb + resident_kb + more.resident_kb};
}

static bool within(struct figures now, struct figures limit)
{
    return now.bytes <= limit.bytes && now.threads <= limit.threads &&
           now.descriptors <= limit.descriptors && now.mappings <= limit.mappings &&
           now.resident_kb <= limit.resident_kb;
}

/* The figures when they are within `limit`, or after a while. */
static struct figures measure_until(struct figures limit)
{
    const double end = check_now_ms() + MEASURE_MS;
    struct figures now = figures_measure();
    while (!within(now, limit) && check_now_ms() < end) {
        check_sleep_ms(10);
        now = figures_measure();
    }
    return now;
}

void figures_compare(struct figures before, int rounds, struct figures more)
{
    const struct figures limit = limits(before, rounds, more), after = measure_until(limit);
    printf("  %d rounds: bytes in use %ld -> %ld, threads %ld -> %ld, descriptors %ld -> %ld, "
           "mappings %ld -> %ld, resident KB %ld -> %ld\n",
           rounds, before.bytes, after.bytes, before.threads, after.threads, before.descriptors,
           after.descriptors, before.mappings, after.mappings, before.resident_kb,
           after.resident_kb);
    CHECK(before.threads > 0 && before.descriptors >= 0 && before.mappings > 0 &&
          before.resident_kb > 0);
    CHECK_MSG(after.bytes <= limit.bytes, "%ld bytes more are in use", after.bytes - before.bytes);
    CHECK_MSG(after.threads <= limit.threads, "%ld threads more", after.threads - before.threads);
    CHECK_MSG(after.descriptors <= limit.descriptors, "%ld descriptors more",
              after.descriptors - before.descriptors);
    CHECK_MSG(after.mappings <= limit.mappings, "%ld mappings more",
              after.mappings - before.mappings);
    CHECK_MSG(after.resident_kb <= limit.resident_kb, "%ld KB more are resident",
              after.resident_kb - before.resident_kb);
}

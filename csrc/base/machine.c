/* Identifies the machine. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/base/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* FNV-1a */
static const uint64_t basis = 0xcbf29ce484222325u;

static uint64_t digest_byte(uint64_t digest, unsigned char byte)
{
    return (digest ^ byte) * 0x100000001b3u;
}

uint64_t tri_machine(void)
{
    uint64_t digest = basis;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file == NULL)
        return 0;
    for (int byte = fgetc(file); byte != EOF; byte = fgetc(file))
        digest = digest_byte(digest, (unsigned char)byte);
    (void)fclose(file);
    return digest;
}

uint64_t tri_machine_host(void)
{
    uint64_t digest = basis;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the library changes no environment */
    const char *said = getenv("NCCL_HOSTID");
    if (said == NULL || said[0] == '\0')
        return tri_machine();
    for (; *said != '\0'; said++)
        digest = digest_byte(digest, (unsigned char)*said);
    return digest;
}

void tri_machine_name(char *out, size_t size)
{
    if (gethostname(out, size) != 0 || out[0] == '\0')
        (void)snprintf(out, size, "?");
    out[size - 1] = '\0'; /* a longer name may come without it */
}

long tri_machine_process(void)
{
    return (long)getpid();
}

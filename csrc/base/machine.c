/* Identifies the machine. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/base/machine.h"

#include <stdio.h>
#include <unistd.h>

uint64_t tri_machine(void)
{
    uint64_t digest = 0xcbf29ce484222325u; /* FNV-1a */
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file == NULL)
        return 0;
    for (int byte = fgetc(file); byte != EOF; byte = fgetc(file))
        digest = (digest ^ (unsigned char)byte) * 0x100000001b3u;
    (void)fclose(file);
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

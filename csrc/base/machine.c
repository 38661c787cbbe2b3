/* Identifies the machine. */
#include "csrc/base/machine.h"

#include <stdio.h>

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

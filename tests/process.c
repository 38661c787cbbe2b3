/* What the operating system says of this process. */
#define _POSIX_C_SOURCE 200809L
#include "tests/process.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of a folder, without itself and the one above. */
static long entries(const char *path)
{
    long n = -2;
    DIR *folder = opendir(path);
    if (folder == NULL)
        return -1;
    while (readdir(folder) != NULL)
        n++;
    (void)closedir(folder);
    return n;
}

static long lines(const char *path)
{
    long n = 0;
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return -1;
    for (int c = fgetc(file); c != EOF; c = fgetc(file))
        n += c == '\n';
    (void)fclose(file);
    return n;
}

long process_threads(void)
{
    return entries("/proc/self/task");
}

long process_descriptors(void)
{
    const long n = entries("/proc/self/fd");
    return n < 0 ? -1 : n - 1; /* one is what reads them */
}

long process_descriptors_of(int pid)
{
    char path[40];
    (void)snprintf(path, sizeof path, "/proc/%d/fd", pid);
    return entries(path);
}

long process_mappings(void)
{
    return lines("/proc/self/maps");
}

long process_resident_kb(void)
{
    long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL)
        return -1;
    const int read = fscanf(file, "%ld %ld", &all, &resident);
    (void)fclose(file);
    return read == 2 ? resident * (sysconf(_SC_PAGESIZE) / 1024) : -1;
}

long process_sleeps(int thread)
{
    static const char name[] = "voluntary_ctxt_switches:";
    char path[64], line[128];
    long sleeps = -1;
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/status", thread);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, sizeof name - 1) == 0)
            sleeps = atol(line + sizeof name - 1);
    if (file != NULL)
        (void)fclose(file);
    return sleeps;
}

/* A program that measures, with a process for each of 3 ranks, over the backend "processes": its main, and
 * what surrounds it. */
#include "tests/processes/backend.h"

/* Before the main of the program. */
__attribute__((constructor)) static void begin(void)
{
    processes_begin();
    processes_devices(3);
}

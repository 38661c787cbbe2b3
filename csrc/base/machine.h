/* Identifies the machine. */
#ifndef TRI_BASE_MACHINE_H
#define TRI_BASE_MACHINE_H

#include <stdint.h>

/* A number that all processes of one machine share since its boot, also in containers, and no other
 * machine has. 0 if the system gives none. */
uint64_t tri_machine(void);

#endif

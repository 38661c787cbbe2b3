/* Which machine this is. */
#ifndef TRI_BASE_MACHINE_H
#define TRI_BASE_MACHINE_H

#include <stdint.h>

/* The same number in all processes of one machine since it was started, also in containers, and
 * another one elsewhere. 0 if the system does not say. */
uint64_t tri_machine(void);

#endif

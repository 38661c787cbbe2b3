/* Identifies the machine. */
#ifndef TRI_BASE_MACHINE_H
#define TRI_BASE_MACHINE_H

#include <stddef.h>
#include <stdint.h>

/* A number that all processes of one machine share since its boot, also in containers, and no other
 * machine has. 0 if the system gives none. */
uint64_t tri_machine(void);

/* The host that this process counts itself to: what NCCL_HOSTID says in its environment, as NCCL takes
 * it, or else the machine. Equal on the ranks of one host. */
uint64_t tri_machine_host(void);

/* The machine's name for people; "?" if it has none. */
void tri_machine_name(char *out, size_t size);
/* The process's number on it. */
long tri_machine_process(void);

#endif

/* On which hosts the ranks of a communicator run. */
#ifndef TRI_SPARSE_HOSTS_H
#define TRI_SPARSE_HOSTS_H

#include <stdint.h>

/* Number hosts in the order of their first ranks: host_of[r] is the number of rank r's, and ranks are
 * on one host if their identities are equal. Returns how many hosts there are. */
int32_t tri_hosts_number(uint8_t *host_of, const uint64_t *identities, int32_t size);

#endif

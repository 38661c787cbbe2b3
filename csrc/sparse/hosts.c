/* On which hosts the ranks of a communicator run. */
#include "csrc/sparse/hosts.h"

int32_t tri_hosts_number(uint8_t *host_of, const uint64_t *identities, int32_t size)
{
    int32_t hosts = 0;
    for (int32_t rank = 0; rank < size; rank++) {
        int32_t first = 0;
        while (identities[first] != identities[rank])
            first++;
        host_of[rank] = first == rank ? (uint8_t)hosts++ : host_of[first];
    }
    return hosts;
}

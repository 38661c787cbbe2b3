/* Where the ranks of a job meet: hosts, ports, lists of nodes. */
#ifndef TRI_JOB_PLACE_H
#define TRI_JOB_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csrc/base/status.h"
#include "csrc/peers/address.h"

/* Does it look like a name or an address: 1 to TRIB_HOST_MAX bytes, and no port among them? An IPv6
 * address of one link (fe80::1%eth0) is none: it means another host on each. */
bool tri_place_host_valid(const char *host);
/* `text` as a host, without the brackets that an IPv6 address may have. False if it is none. */
bool tri_place_host_set(char host[TRIB_HOST_MAX + 1], const char *text);
/* "host:port" or "[IPv6]:port", as in TRIBUTARY_ADDRESS. False if it is neither. */
bool tri_place_parse(char host[TRIB_HOST_MAX + 1], int32_t *out_port, const char *text);
/* The first host of a list in SLURM's form: "a7" of "a[7,9-12],b3", "r0n04" of "r[0-1]n[04-05]".
 * False if it is no such list, or the host is too long. */
bool tri_place_first(char host[TRIB_HOST_MAX + 1], const char *list);

/* A number that follows from the texts, up to a NULL, and from where each of them ends. */
uint64_t tri_place_token(const char *const *texts);

/* The ports at which rank 0 listens, at the first that is free, and the others look for it. */
enum { TRI_PLACE_PORTS = 4, TRI_PLACE_LOWEST = 61000, TRI_PLACE_HIGHEST = 65479 };
struct tri_ports {
    int32_t first, last;
};
struct tri_ports tri_place_ports(const trib_job *job);
/* "port 7000", "ports 61000 to 61003". */
struct tri_ports_text {
    char text[32];
};
struct tri_ports_text tri_ports_text(struct tri_ports ports);

/* Is it this host's loopback interface by its very name or number? */
bool tri_place_is_loopback(const char *host);
/* Ask the system for the addresses of `host`: out->tcp. Returns NULL or what is wrong; may block. */
const char *tri_place_resolve(struct tri_peer_address *out, const char *host);

/* " (10.0.0.7, fd00::2)": the addresses that were found for `host`. "" if there is none but itself. */
struct tri_place_text {
    char text[208];
};
struct tri_place_text tri_place_addresses(const struct tri_peer_address *found, const char *host);

#endif

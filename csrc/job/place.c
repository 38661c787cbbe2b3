/* Where the ranks of a job meet.
 *
 * A port that nobody has chosen lies above those that Linux gives to outgoing connections (32768 to
 * 60999), so that none of these sits on it; and it follows from the job's token, so that two jobs on
 * one host rarely try the same. Where they do, the handshake tells them apart. */
#define _GNU_SOURCE
#include "csrc/job/place.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "csrc/base/bytes.h"
#include "csrc/base/text.h"
#include "csrc/peers/mac.h"

/* ------------------------------------------------------------------------------------------ text */

/* Letters, digits and what names have between them, so that no port, path or bracket is among them. */
static bool of_a_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_';
}

bool tri_place_host_valid(const char *host)
{
    struct in6_addr address;
    const size_t n = strnlen(host, TRIB_HOST_MAX + 1);
    if (n == 0 || n > TRIB_HOST_MAX)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!of_a_name(host[i]))
            return inet_pton(AF_INET6, host, &address) == 1;
    return true;
}

bool tri_place_host_set(char host[TRIB_HOST_MAX + 1], const char *text)
{
    const size_t n = strnlen(text, TRIB_HOST_MAX + 3);
    const bool bracket = n > 2 && text[0] == '[' && text[n - 1] == ']';
    const size_t bytes = bracket ? n - 2 : n;
    if (bytes > TRIB_HOST_MAX)
        return false;
    memcpy(host, text + bracket, bytes);
    host[bytes] = '\0';
    return tri_place_host_valid(host);
}

/* 1 to 65535, or 0 if it is no port. */
static int32_t parse_port(const char *digits)
{
    int32_t port = 0;
    for (const char *c = digits; *c != '\0'; c++) {
        if (*c < '0' || *c > '9' || port > UINT16_MAX)
            return 0;
        port = 10 * port + (*c - '0');
    }
    return port <= UINT16_MAX ? port : 0;
}

bool tri_place_parse(char host[TRIB_HOST_MAX + 1], int32_t *out_port, const char *text)
{
    const bool bracket = text[0] == '[';
    const char *begin = text + bracket;
    const char *end = bracket ? strstr(text, "]:") : strchr(text, ':');
    const size_t n = end == NULL ? 0 : (size_t)(end - begin);
    if (n == 0 || n > TRIB_HOST_MAX)
        return false;
    memcpy(host, begin, n);
    host[n] = '\0';
    *out_port = parse_port(end + 1 + bracket);
    return *out_port != 0 && tri_place_host_valid(host);
}

/* The first number of "[7,9-12]" at `list`, added to `host`; returns what follows the bracket, or
 * NULL. */
static const char *first_number(char *host, size_t *n, const char *list)
{
    const char *end = strchr(list, ']');
    const char *begin = list + 1;
    size_t digits = 0;
    while (begin[digits] >= '0' && begin[digits] <= '9')
        digits++;
    if (end == NULL || digits == 0 || *n + digits > TRIB_HOST_MAX ||
        strchr("-,]", begin[digits]) == NULL)
        return NULL;
    memcpy(host + *n, begin, digits);
    *n += digits;
    return end + 1;
}

bool tri_place_first(char host[TRIB_HOST_MAX + 1], const char *list)
{
    size_t n = 0;
    while (list != NULL && *list != '\0' && *list != ',') {
        if (*list == '[') {
            list = first_number(host, &n, list);
        } else if (n == TRIB_HOST_MAX) {
            return false;
        } else {
            host[n++] = *list++;
        }
    }
    host[n] = '\0';
    return list != NULL && tri_place_host_valid(host);
}

/* ----------------------------------------------------------------------------------------- ports */

uint64_t tri_place_token(const char *const *texts)
{
    static const char domain[] = "tributary job, version 1";
    struct tri_mac hash;
    uint8_t out[8];
    tri_mac_begin(&hash, sizeof out, NULL, 0);
    tri_mac_add(&hash, domain, sizeof domain);
    for (; *texts != NULL; texts++)
        tri_mac_add(&hash, *texts, strlen(*texts) + 1);
    tri_mac_end(&hash, out);
    return tri_load_le(out, sizeof out);
}

/* Neighbours: whoever opens a firewall for the job's own port opens them with one rule. */
struct tri_ports tri_place_ports(const trib_job *job)
{
    const uint64_t groups = (TRI_PLACE_HIGHEST + 1 - TRI_PLACE_LOWEST) / TRI_PLACE_PORTS;
    const int32_t first = TRI_PLACE_LOWEST + (int32_t)(job->token % groups) * TRI_PLACE_PORTS;
    if (job->port != 0)
        return (struct tri_ports){job->port, job->port};
    return (struct tri_ports){first, first + TRI_PLACE_PORTS - 1};
}

struct tri_ports_text tri_ports_text(struct tri_ports ports)
{
    struct tri_ports_text out;
    if (ports.first == ports.last)
        (void)snprintf(out.text, sizeof out.text, "port %d", ports.first);
    else
        (void)snprintf(out.text, sizeof out.text, "ports %d to %d", ports.first, ports.last);
    return out;
}

/* ------------------------------------------------------------------------------------- addresses */

bool tri_place_is_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strcmp(host, "127.0.0.1") == 0;
}

static bool add_address(struct tri_peer_address *out, const struct addrinfo *found)
{
    union {
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address;
    struct tri_peer_tcp *tcp = &out->tcp[out->tcp_count];
    if (found->ai_addrlen > sizeof address || out->tcp_count == TRI_PEER_TCP_MAX)
        return false;
    memcpy(&address, found->ai_addr, found->ai_addrlen);
    memset(tcp, 0, sizeof *tcp);
    if (found->ai_family == AF_INET) {
        tcp->family = 4;
        memcpy(tcp->bytes, &address.v4.sin_addr, sizeof address.v4.sin_addr);
    } else if (found->ai_family == AF_INET6) {
        tcp->family = 6;
        memcpy(tcp->bytes, &address.v6.sin6_addr, sizeof address.v6.sin6_addr);
    }
    out->tcp_count += tcp->family != 0;
    return true;
}

const char *tri_place_resolve(struct tri_peer_address *out, const char *host)
{
    const struct addrinfo wanted = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *all = NULL;
    out->tcp_count = 0;
    const int error = getaddrinfo(host, NULL, &wanted, &all);
    if (error != 0)
        return gai_strerror(error);
    for (const struct addrinfo *one = all; one != NULL && add_address(out, one); one = one->ai_next)
        continue;
    freeaddrinfo(all);
    return out->tcp_count > 0 ? NULL : "it has no address";
}

struct tri_place_text tri_place_addresses(const struct tri_peer_address *found, const char *host)
{
    struct tri_place_text out = {""};
    struct tri_text text = {out.text, 0, sizeof out.text, false, false};
    char one[INET6_ADDRSTRLEN];
    for (int i = 0; i < found->tcp_count; i++) {
        const struct tri_peer_tcp *tcp = &found->tcp[i];
        const bool written =
            inet_ntop(tcp->family == 4 ? AF_INET : AF_INET6, tcp->bytes, one, sizeof one) != NULL;
        if (!written || (found->tcp_count == 1 && strcmp(one, host) == 0))
            break;
        tri_text_add(&text, "%s%s", i == 0 ? " (" : ", ", one);
    }
    tri_text_add(&text, "%s", text.used > 0 ? ")" : "");
    return out;
}

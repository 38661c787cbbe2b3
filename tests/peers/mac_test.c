/* BLAKE2s against the vectors of RFC 7693, and what is derived with it. */
#include <stdio.h>
#include <string.h>

#include "csrc/base/random.h"
#include "csrc/peers/mac.h"
#include "csrc/peers/proof.h"
#include "tests/check.h"

static void mac_of(uint8_t *out, size_t out_bytes, const uint8_t *key, size_t key_bytes,
                   const void *bytes, size_t n)
{
    struct tri_mac mac;
    tri_mac_begin(&mac, out_bytes, key, key_bytes);
    tri_mac_add(&mac, bytes, n);
    tri_mac_end(&mac, out);
}

static bool is(const uint8_t *found, const char *hexadecimal)
{
    char text[2 * TRI_MAC_MAX + 1];
    for (int i = 0; i < TRI_MAC_MAX; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", found[i]);
    return strcmp(text, hexadecimal) == 0;
}

/* The sequence of appendix E. */
static void sequence(uint8_t *out, size_t n, uint32_t seed)
{
    uint32_t a = 0xdead4badu * seed, b = 1;
    for (size_t i = 0; i < n; i++) {
        const uint32_t next = a + b;
        a = b;
        b = next;
        out[i] = (uint8_t)(next >> 24);
    }
}

static void vectors(void)
{
    static const size_t outs[] = {16, 20, 28, 32}, ins[] = {0, 3, 64, 65, 255, 1024};
    uint8_t found[TRI_MAC_MAX], in[1024], key[TRI_MAC_KEY];
    struct tri_mac all;
    check_begin("the vectors of RFC 7693");
    mac_of(found, 32, NULL, 0, "abc", 3);
    CHECK(is(found, "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982"));
    tri_mac_begin(&all, 32, NULL, 0);
    for (size_t o = 0; o < 4; o++) {
        for (size_t i = 0; i < 6; i++) {
            sequence(in, ins[i], (uint32_t)ins[i]);
            mac_of(found, outs[o], NULL, 0, in, ins[i]);
            tri_mac_add(&all, found, outs[o]);
            sequence(key, outs[o], (uint32_t)outs[o]);
            mac_of(found, outs[o], key, outs[o], in, ins[i]);
            tri_mac_add(&all, found, outs[o]);
        }
    }
    tri_mac_end(&all, found);
    CHECK(is(found, "6a411f08ce25adcdfb02aba641451cec53c598b24f4fc787fbdc88797f4c1dfe"));
    check_end();
}

/* However the bytes are divided. */
static void pieces(void)
{
    uint8_t bytes[300], whole[TRI_MAC_MAX], found[TRI_MAC_MAX];
    check_begin("in pieces");
    sequence(bytes, sizeof bytes, 7);
    mac_of(whole, 32, bytes, 32, bytes, sizeof bytes);
    for (size_t piece = 1; piece < 140; piece++) {
        struct tri_mac mac;
        tri_mac_begin(&mac, 32, bytes, 32);
        for (size_t at = 0; at < sizeof bytes; at += piece)
            tri_mac_add(&mac, bytes + at, sizeof bytes - at < piece ? sizeof bytes - at : piece);
        tri_mac_end(&mac, found);
        CHECK(memcmp(found, whole, sizeof whole) == 0);
    }
    check_end();
}

static void equal(void)
{
    uint8_t a[16] = {1, 2, 3}, b[16] = {1, 2, 3};
    check_begin("are two MACs equal");
    CHECK(tri_mac_equal(a, b, sizeof a));
    for (size_t i = 0; i < sizeof b; i++)
        for (int bit = 0; bit < 8; bit++) {
            b[i] ^= (uint8_t)(1 << bit);
            CHECK(!tri_mac_equal(a, b, sizeof a));
            b[i] ^= (uint8_t)(1 << bit);
        }
    check_end();
}

/* Everything that a proof is bound to changes it. */
static void proofs(void)
{
    enum { N = 9 };
    uint8_t keys[2][TRI_MAC_KEY], out[N][TRI_PROOF];
    struct tri_session sessions[N] = {{.connector = 1, .acceptor = 2, .size = 4}};
    enum tri_purpose purposes[N];
    check_begin("proofs are bound to key, purpose, ranks, size and nonces");
    tri_proof_key(keys[0], (const uint8_t *)"id", 2);
    tri_proof_key(keys[1], (const uint8_t *)"ie", 2);
    for (int i = 0; i < N; i++) {
        sessions[i] = sessions[0];
        purposes[i] = TRI_CONNECTOR_PROVES;
    }
    sessions[1].connector = 0;
    sessions[2].acceptor = 3;
    sessions[3].size = 5;
    sessions[4].connector_nonce[31] = 1;
    sessions[5].acceptor_nonce[0] = 1;
    purposes[6] = TRI_ACCEPTOR_PROVES;
    purposes[7] = TRI_CONNECTOR_SENDS;
    for (int i = 0; i < N; i++)
        tri_proof_derive(out[i], keys[i == 8], &sessions[i], purposes[i]);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < i; j++)
            CHECK_MSG(memcmp(out[i], out[j], TRI_PROOF) != 0, "%d and %d are equal", i, j);
    tri_proof_derive(out[1], keys[0], &sessions[0], purposes[0]);
    CHECK(memcmp(out[0], out[1], TRI_PROOF) == 0);
    check_end();
}

static void random_bytes(void)
{
    uint8_t a[64] = {0}, b[64] = {0};
    check_begin("random bytes");
    CHECK_OK(tri_random(a, sizeof a));
    CHECK_OK(tri_random(b, sizeof b));
    CHECK(memcmp(a, b, 32) != 0 && memcmp(a + 32, b + 32, 32) != 0);
    check_end();
}

int main(void)
{
    vectors();
    pieces();
    equal();
    proofs();
    random_bytes();
    return check_finish("mac_test");
}

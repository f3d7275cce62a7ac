/* Cases of tcp: a peer that holds the token and then sends arbitrary bytes. */
#include <sys/mman.h>

#include "tcp_cases.h"

/* Connects to y as a simulated peer, with a valid proof. */
static int enter(ct_pair_t *pair)
{
    tcp_target_t target;
    uint8_t hello[TCP_HELLO_SIZE], challenge[TCP_CHALLENGE_SIZE];
    psc_proof_reply_t reply;
    psc_proof_t proof;
    int fd;

    ct_pair_open(pair);
    tcp_target_of(&pair->y, &target);
    ct_end_join(&pair->y, &pair->y, PSC_ROLE_ACCEPTOR);
    fd = tcp_dial(target.port);
    tcp_wire_store64(hello, TCP_HELLO_MAGIC);
    tcp_wire_store64(hello + 8, target.id);
    ct_check(psc_proof_begin(&proof, PSC_ROLE_CONNECTOR, ct_token, target.id,
                             target.id),
             "random bytes");
    memcpy(hello + 16, psc_proof_hello(&proof), PSC_PROOF_NONCE_SIZE);
    tcp_put(fd, hello, sizeof(hello));
    ct_check(tcp_take(pair->b, fd, challenge, sizeof(challenge)), "hung up");
    psc_proof_receive(&proof, PSC_PROOF_CHALLENGE, challenge + 8,
                      PSC_PROOF_CHALLENGE_SIZE, &reply);
    ct_check(reply.verdict == PSC_PROOF_ACCEPTED, "%s", reply.why);
    tcp_put(fd, reply.body, reply.len);
    ct_until(pair, pair->y.up || pair->y.failed);
    ct_check(pair->y.up, "%s", pair->y.reason);
    return fd;
}

static void leave(ct_pair_t *pair, int fd)
{
    close(fd);
    ct_pair_down(pair);
}

/* Makes a message as the harness expects it. Returns its length on the
 * stream. */
static size_t frame_make(uint8_t *p, uint64_t seq, uint64_t len)
{
    const tcp_frame_t frame = {TCP_KIND_AM, CT_AM_ID, sizeof(ct_header_t), len};
    const ct_header_t header = {seq, len, seq + 3};

    tcp_frame_pack(p, &frame);
    memcpy(p + TCP_FRAME_SIZE, &header, sizeof(header));
    ct_pattern_fill(p + TCP_FRAME_SIZE + sizeof(header), len, header.seed);
    return TCP_FRAME_SIZE + sizeof(header) + len;
}

static void absurd(const tcp_frame_t *frame, uint32_t magic, const char *word)
{
    ct_pair_t pair;
    uint8_t bytes[TCP_FRAME_SIZE + 300] = {0};
    int fd = enter(&pair);

    tcp_frame_pack(bytes, frame);
    magic = htole32(magic);
    memcpy(bytes, &magic, sizeof(magic));
    tcp_put(fd, bytes, sizeof(bytes));
    ct_until(&pair, pair.y.failed);
    ct_check(pair.y.status == PSC_ERR_PROTOCOL, "%s",
             psc_status_string(pair.y.status));
    ct_check(strstr(pair.y.reason, word), "%s", pair.y.reason);
    printf("%s\n", pair.y.reason);
    leave(&pair, fd);
}

CASE(absurd_frames_break)
{
    absurd(&(tcp_frame_t){TCP_KIND_AM, 1, 0, 0}, 0x12345678, "mark");
    absurd(&(tcp_frame_t){77, 1, 0, 0}, TCP_FRAME_MAGIC, "kind");
    absurd(&(tcp_frame_t){TCP_KIND_GOODBYE, 0, 0, 8}, TCP_FRAME_MAGIC,
           "goodbye");
    absurd(&(tcp_frame_t){TCP_KIND_AM, 1, PSC_AM_HEADER_MAX + 1, 0},
           TCP_FRAME_MAGIC, "header");
    absurd(&(tcp_frame_t){TCP_KIND_AM, 1, 255, 10}, TCP_FRAME_MAGIC, "header");
    absurd(&(tcp_frame_t){TCP_KIND_AM, 1, 8, UINT64_MAX}, TCP_FRAME_MAGIC,
           "length");
    absurd(&(tcp_frame_t){TCP_KIND_AM, 1, 8, (1ull << 62) + 1}, TCP_FRAME_MAGIC,
           "length");
}

/* The harness's own checks of contents do not apply to damaged messages. */
static psc_status_t ignore_recv(psc_ep_t *ep, const psc_am_t *am)
{
    const volatile uint8_t *payload = am->payload;

    (void)ep;
    for (size_t i = 0; i < am->len; i++) /* check that every byte is readable */
        (void)payload[i];
    return PSC_OK;
}

static void ignore_begin(psc_ep_t *ep, uint8_t id, const void *header,
                         uint8_t header_len, uint64_t len, psc_dest_t *dest_p)
{
    (void)ep, (void)id, (void)header, (void)header_len, (void)len;
    dest_p->n_iov = 0;
}

static void ignore_end(psc_ep_t *ep, void *cookie)
{
    (void)ep, (void)cookie;
}

/* Streams of frames with one wrong byte: the endpoint may break, nothing else
 * is affected. */
CASE(mutated_frames_do_no_harm)
{
    static uint8_t bytes[4096];
    unsigned dice = 17, broken = 0;

    for (int round = 0; round < 200; round++) {
        ct_pair_t pair;
        psc_upcalls_t up;
        size_t len = 0;
        int fd = enter(&pair);

        up = *pair.b->iface->up;
        up.am_recv = ignore_recv;
        up.am_begin = ignore_begin;
        up.am_end = ignore_end;
        pair.b->iface->up = &up;
        for (uint64_t seq = 0; seq < 10; seq++)
            len += frame_make(bytes + len, seq, seq * 20);
        dice = dice * 1103515245 + 12345;
        bytes[(dice >> 8) % len] ^= (uint8_t)(1 + dice % 255);
        tcp_put(fd, bytes, len);
        close(fd);
        ct_until(&pair, pair.y.failed);
        broken += pair.y.status == PSC_ERR_PROTOCOL;
        ct_pair_down(&pair);
    }
    printf("%u of 200 streams broke the protocol\n", broken);
    ct_check(broken > 20, "only %u were noticed", broken);
}

/* However the stream is cut into reads, the messages are the same. */
CASE(dribbled_frames_arrive)
{
    static uint8_t bytes[600000];
    static const uint64_t lens[] = {0,     1, 100,    2047, 2048,  2049,
                                    70000, 5, 200000, 0,    65536, 3};
    ct_pair_t pair;
    size_t len = 0;
    unsigned dice = 3;
    int fd = enter(&pair);

    pair.y.landing = CT_SCATTER;
    for (uint64_t seq = 0; seq < sizeof(lens) / sizeof(lens[0]); seq++)
        len += frame_make(bytes + len, seq, lens[seq]);
    for (size_t at = 0; at < len;) {
        size_t piece;

        dice = dice * 1103515245 + 12345;
        piece = 1 + (dice >> 8) % (at < 8000 ? 4 : 20000);
        piece = piece < len - at ? piece : len - at;
        tcp_put(fd, bytes + at, piece);
        at += piece;
        for (int i = 0; i < 3; i++)
            ct_side_progress(pair.b);
        ct_check(!pair.y.failed, "%s", pair.y.reason);
    }
    ct_until(&pair, pair.y.received == sizeof(lens) / sizeof(lens[0]));
    printf("%llu came by am_begin\n", (unsigned long long)pair.y.begun);
    leave(&pair, fd);
}

/* The stream ends inside a message; the messages before it were delivered. */
CASE(cut_stream_breaks)
{
    static uint8_t bytes[20000];
    ct_pair_t pair;
    size_t len;
    int fd = enter(&pair);

    len = frame_make(bytes, 0, 50);
    len += frame_make(bytes + len, 1, 15000) - 1;
    tcp_put(fd, bytes, len);
    close(fd);
    ct_until(&pair, pair.y.failed);
    ct_check(pair.y.received == 1, "%llu messages",
             (unsigned long long)pair.y.received);
    ct_check(pair.y.status == PSC_ERR_PEER_LOST, "%s", pair.y.reason);
    ct_pair_down(&pair);
}

/* An orderly close is distinguished from a death. */
CASE(goodbye_is_told)
{
    ct_pair_t pair;

    ct_pair_up(&pair);
    ct_end_destroy(&pair.x, pair.b);
    ct_until(&pair, pair.y.failed);
    ct_check(pair.y.status == PSC_ERR_CLOSED, "%s", pair.y.reason);
    ct_pair_down(&pair);
}

/* Memory is unmapped during a send: only this endpoint breaks. */
CASE(unreadable_buffer_breaks)
{
    ct_send_t send;
    ct_pair_t pair;
    psc_iov_t iov = {.len = 1 << 20};
    psc_status_t status;

    ct_pair_up(&pair);
    iov.base =
        mmap(NULL, iov.len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ct_check(iov.base != MAP_FAILED, "mmap");
    ct_send_make(&send);
    status =
        ct_ops->am_zcopy(pair.x.ep, CT_AM_ID, NULL, 0, &iov, 1, &send.comp);
    ct_until(&pair, pair.x.failed && pair.y.failed);
    ct_check(pair.x.status == PSC_ERR_INVALID, "%s", pair.x.reason);
    ct_check(status < 0 || send.done, "the send did not end");
    munmap(iov.base, iov.len);
    ct_pair_down(&pair);
}

/* The published vectors of SipHash-2-4 with 128 bits: key 00 ... 0f, messages
 * of no byte and of one. */
CASE(proof_hash_is_siphash)
{
    static const struct {
        size_t len;
        uint8_t hash[PSC_SIPHASH_SIZE];
    } vectors[] = {
        {0,
         {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72,
          0x14, 0xc7, 0x55, 0x02, 0x93}},
        {1,
         {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59,
          0x11, 0x9b, 0x22, 0xfc, 0x45}},
    };
    uint8_t bytes[16], hash[PSC_SIPHASH_SIZE];

    for (uint8_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = i;
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        psc_siphash(bytes, bytes, vectors[i].len, hash);
        ct_check(memcmp(hash, vectors[i].hash, sizeof(hash)) == 0, "%zu bytes",
                 vectors[i].len);
    }
}

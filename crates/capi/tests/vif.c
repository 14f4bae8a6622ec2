/* Virtual interfaces through the C API, against the daemon of `tests/c_program.rs`, whose control
 * socket is the argument: frames come back, but for those of ether type 0xdead, which are refused,
 * and 0xfa7a, after which the interface is taken away. */
#include <clearway.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"

static const int64_t SECOND = 1000000000;

static clearway_channel *attach(const char *socket, uint32_t waiting) {
    clearway_options options = {0};
    options.size = sizeof options;
    options.socket = socket;
    options.waiting = waiting;
    clearway_channel *channel = NULL;
    CHECK(clearway_attach("vif", &options, &channel) == 0);
    return channel;
}

static uint32_t open_vif(clearway_channel *channel) {
    const char *receive[] = {"udp dst port 5353", "arp", NULL};
    const char *nothing[] = {NULL};
    clearway_vif_options options = {0};
    options.size = sizeof options;
    options.receive = receive;
    options.copies = nothing;
    clearway_vif vif;
    CHECK(clearway_vif_open(channel, &options, &vif) == 0);
    CHECK(vif.mtu == 1500 && vif.mac[0] == 2 && vif.mac[5] == 7);
    return vif.id;
}

static void make_frame(uint8_t *frame, size_t length, uint16_t ether_type, uint8_t number) {
    memset(frame, number, length);
    frame[12] = ether_type >> 8;
    frame[13] = ether_type & 0xff;
}

static void there_and_back(clearway_channel *channel, uint32_t vif) {
    uint8_t frame[100];
    clearway_frame list[CLEARWAY_FRAMES_MAX];
    clearway_frames frames;
    void *place;
    make_frame(frame, sizeof frame, 0x88b5, 1);
    CHECK(clearway_vif_send(channel, vif, frame, sizeof frame, SECOND) == 0);
    CHECK(clearway_vif_buffer(channel, vif, 60, SECOND, &place) == 0);
    make_frame(place, 60, 0x88b5, 2);
    CHECK(clearway_vif_recv(channel, 0, &frames, list, 32) == CLEARWAY_WOULD_BLOCK);
    CHECK(clearway_vif_flush(channel, vif, SECOND) == 0);
    CHECK(clearway_vif_recv(channel, 10 * SECOND, &frames, list, 32) == 2);
    CHECK(frames.count == 2 && frames.vif == vif);
    CHECK(list[0].length == sizeof frame && !memcmp(list[0].data, frame, sizeof frame));
    CHECK(list[0].time_ns == 5 * (uint64_t)SECOND);
    make_frame(frame, 60, 0x88b5, 2);
    CHECK(list[1].length == 60 && !memcmp(list[1].data, frame, 60));
    clearway_vif_release(channel, &frames);
    clearway_vif_release(channel, &frames);
    CHECK(frames.count == 0 && clearway_vif_list(&frames, list, 32) == 0);
}

static void refused_frames(clearway_channel *channel, uint32_t vif) {
    uint8_t frame[60];
    clearway_frames_sent sent;
    make_frame(frame, sizeof frame, 0xdead, 0);
    CHECK(clearway_vif_sent(channel, vif, &sent) == 0);
    uint64_t rejected = sent.rejected;
    CHECK(clearway_vif_send(channel, vif, frame, sizeof frame, SECOND) == 0);
    CHECK(clearway_vif_flush(channel, vif, SECOND) == 0);
    do {
        CHECK(clearway_vif_sent(channel, vif, &sent) == 0);
    } while (sent.rejected == rejected);
    CHECK(sent.rejected == rejected + 1 && sent.reason == CLEARWAY_REFUSED_VLAN);
    CHECK(strstr(clearway_refused_text(sent.reason), "VLAN") != NULL);
    CHECK(strstr(clearway_refused_text(0), "no frame") != NULL);
    CHECK(strstr(clearway_refused_text(99), "not a reason") != NULL);
}

static void next_event(clearway_channel *channel, clearway_event *event) {
    do {
        int armed = clearway_arm(channel);
        struct pollfd waiting = {clearway_fd(channel), POLLIN, 0};
        CHECK(armed >= 0);
        if (armed) CHECK(poll(&waiting, 1, 10000) == 1);
        CHECK(clearway_disarm(channel) == 0);
    } while (clearway_next_event(channel, 0, event) == CLEARWAY_WOULD_BLOCK);
}

static void by_events(clearway_channel *channel) {
    uint8_t frame[60];
    clearway_event event;
    clearway_frame list[CLEARWAY_FRAMES_MAX];
    uint32_t vif = open_vif(channel);
    make_frame(frame, sizeof frame, 0xfa7a, 9);
    CHECK(clearway_vif_send(channel, vif, frame, sizeof frame, 0) == 0);
    next_event(channel, &event);
    CHECK(event.kind == CLEARWAY_EVENT_FRAMES && event.vif == vif && event.frames.count == 1);
    CHECK(clearway_vif_list(&event.frames, list, CLEARWAY_FRAMES_MAX) == 1);
    CHECK(list[0].length == 60 && !memcmp(list[0].data, frame, 60));
    clearway_vif_release(NULL, &event.frames);
    next_event(channel, &event);
    CHECK(event.kind == CLEARWAY_EVENT_VIF_CLOSED && event.vif == vif);
    CHECK(event.code == CLEARWAY_DENIED);
}

static void taken_away(clearway_channel *channel) {
    uint8_t frame[60];
    clearway_frame list[CLEARWAY_FRAMES_MAX];
    clearway_frames frames;
    uint32_t vif = open_vif(channel);
    make_frame(frame, sizeof frame, 0xfa7a, 9);
    CHECK(clearway_vif_send(channel, vif, frame, sizeof frame, 0) == 0);
    CHECK(clearway_vif_recv(channel, 10 * SECOND, &frames, list, 32) == 1);
    clearway_vif_release(channel, &frames);
    CHECK(clearway_vif_recv(channel, 10 * SECOND, &frames, list, 32) == CLEARWAY_DENIED);
    CHECK(frames.vif == vif && frames.count == 0);
    CHECK(clearway_vif_close(channel, vif) == CLEARWAY_CLOSED);
}

static void misuse(clearway_channel *channel, uint32_t vif) {
    const char *secret[] = {"tcp port 22", NULL};
    const char *not_text[] = {"\xff", NULL};
    uint8_t frame[60] = {0};
    clearway_vif_options options = {0};
    clearway_vif opened;
    clearway_frames frames = {0};
    clearway_frame list[CLEARWAY_FRAMES_MAX];
    void *place;
    CHECK(clearway_vif_open(channel, &options, &opened) == CLEARWAY_INVALID);
    options.size = sizeof options;
    options.receive = secret;
    CHECK(clearway_vif_open(channel, &options, &opened) == CLEARWAY_DENIED);
    CHECK(strstr(clearway_last_error(), "tcp port 22"));
    CHECK(clearway_vif_open(channel, &options, NULL) == CLEARWAY_INVALID);
    CHECK(clearway_vif_open(channel, NULL, &opened) == CLEARWAY_INVALID);
    options.receive = not_text;
    CHECK(clearway_vif_open(channel, &options, &opened) == CLEARWAY_INVALID);
    options.receive = NULL;
    CHECK(clearway_vif_open(channel, &options, &opened) == CLEARWAY_INVALID);
    options.mac = "02:00";
    CHECK(clearway_vif_open(channel, &options, &opened) == CLEARWAY_INVALID);
    CHECK(strstr(clearway_last_error(), "02:00"));
    options.mac = "own";
    options.address = "10.0.0.9";
    CHECK(clearway_vif_open(channel, &options, &opened) == CLEARWAY_INVALID);
    CHECK(clearway_vif_send(channel, vif, frame, 13, 0) == CLEARWAY_INVALID);
    CHECK(clearway_vif_send(channel, vif, NULL, 60, 0) == CLEARWAY_INVALID);
    CHECK(clearway_vif_send(channel, vif + 100, frame, 60, 0) == CLEARWAY_CLOSED);
    CHECK(clearway_vif_buffer(channel, vif, 70000, 0, &place) == CLEARWAY_TOO_LARGE);
    CHECK(clearway_vif_buffer(channel, vif, 60, 0, NULL) == CLEARWAY_INVALID);
    CHECK(clearway_vif_recv(channel, 0, NULL, list, 32) == CLEARWAY_INVALID);
    CHECK(clearway_vif_recv(channel, 0, &frames, list, 31) == CLEARWAY_INVALID);
    CHECK(clearway_vif_recv(channel, 0, &frames, NULL, 32) == CLEARWAY_INVALID);
    CHECK(clearway_vif_list(NULL, list, 32) == CLEARWAY_INVALID);
    CHECK(clearway_vif_list(&frames, list, 32) == 0);
    CHECK(clearway_vif_close(NULL, vif) == CLEARWAY_INVALID);
    CHECK(clearway_vif_flush(NULL, vif, 0) == CLEARWAY_INVALID);
    CHECK(clearway_vif_sent(channel, vif, NULL) == 0);
    clearway_vif_release(NULL, NULL);
    clearway_vif_release(channel, &frames);
}

int main(int count, char **words) {
    CHECK(count == 3);
    clearway_channel *channel = attach(words[1], (uint32_t)atoi(words[2]));
    uint32_t vif = open_vif(channel);
    for (int round = 0; round < 50; round++) {
        there_and_back(channel, vif);
        refused_frames(channel, vif);
    }
    by_events(channel);
    taken_away(channel);
    misuse(channel, vif);
    CHECK(clearway_vif_close(channel, vif) == 0);
    CHECK(clearway_detach(channel, 10 * SECOND) == 0);
    return 0;
}

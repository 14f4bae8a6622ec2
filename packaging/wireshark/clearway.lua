-- A Wireshark dissector for Clearway packets, as docs/wire.md describes them. `make install` puts
-- it where Wireshark finds it. Without that: tshark -X lua_script:packaging/wireshark/clearway.lua
-- -r FILE
--
--   packet  -> dissect            header, CRC, then by type
--   body    -> bodies[type]       syn, challenge, ...
--   frame   -> frames[type]       of data packets
--   message -> show_message       whole or put together from fragments; handed on by service port
--
-- Each reason why a packet is malformed has the name of the crate wire's `Malformed`, and the same
-- bytes get the same reason: crates/wire/tests/dissector.rs compares the two.
--
-- Apps' messages can be dissected further: add a dissector to the table "clearway.port".

local clearway = Proto("clearway", "Clearway")

local HEADER_BYTES = 24
local CRC_AT = 4
local VERSION = 1
local VERSION_NEGOTIATION = 0
local COOKIE_BYTES_MAX = 32
local ENGINES_MAX = 64
local SYN_BYTES_MIN = 64
local PACKET_BYTES_MIN = 548
local MESSAGE_BYTES_MAX = 8 * 1024 * 1024
local ACK_RANGES_MAX = 32

local VERSION_PACKET = 5
local packet_types = {
    [0] = "data", "syn", "challenge", "syn-ack", "reset", "version", "ping", "pong",
}
local frame_types = {
    [0] = "padding", "ping", "ack", "limit", "message", "fragment", "close", "reset", "path",
    "stray", "probe", [0x24] = "operation", [0x25] = "operation part",
    [0x30] = "stream", [0x31] = "open", [0x32] = "wait", [0x33] = "skip",
}
-- What an operation does, and what came of it: docs/operations.md.
local operations = {
    "find", "read", "write", "write with notification", "compare-and-swap", "fetch-and-add",
    "indirect read", "batch of indirect reads", "scan and read",
}
local statuses = {
    [0] = "done", "no such region", "not allowed", "out of bounds", "misaligned", "not found",
    "too large", "busy", "invalid",
}
-- As in docs/wire.md, "Reasons".
local reasons = {
    [0] = "closed in order",
    "aborted, or the flow is not known (any more)",
    "the sender has heard nothing for too long",
    "nobody listens on the port, or the listener's limit is reached",
    "no common version",
    "the other side broke the protocol",
    "the network says that the other side cannot be reached",
}

-- Fields ---------------------------------------------------------------------------------------

local f = {
    version = ProtoField.uint8("clearway.version", "Version"),
    type = ProtoField.uint8("clearway.type", "Type", base.DEC, packet_types),
    flags = ProtoField.uint16("clearway.flags", "Flags", base.HEX),
    ack_requested = ProtoField.bool(
        "clearway.flags.ack_requested", "Acknowledgement requested", 16, nil, 0x0001),
    crc = ProtoField.uint32("clearway.crc32c", "CRC32C", base.HEX),
    crc_status = ProtoField.string("clearway.crc32c.status", "CRC32C status"),
    flow = ProtoField.uint64("clearway.flow", "Flow of the receiver", base.HEX),
    number = ProtoField.uint64("clearway.number", "Packet number"),
    token = ProtoField.uint64("clearway.token", "Token", base.HEX),
    source_flow = ProtoField.uint64("clearway.source_flow", "Flow of the sender", base.HEX),
    service_port = ProtoField.uint16("clearway.service_port", "Service port"),
    version_count = ProtoField.uint8("clearway.versions.count", "Versions"),
    offered = ProtoField.uint8("clearway.versions.offered", "Speaks version"),
    chosen = ProtoField.uint8("clearway.versions.chosen", "Chosen version"),
    cookie_length = ProtoField.uint8("clearway.cookie.length", "Cookie length"),
    cookie = ProtoField.bytes("clearway.cookie", "Cookie"),
    limit = ProtoField.uint64("clearway.limit", "Receive limit"),
    packet_bytes_max = ProtoField.uint16("clearway.packet_bytes_max", "Largest packet"),
    engines = ProtoField.uint8("clearway.engines", "Engines"),
    syn_flags = ProtoField.uint8("clearway.syn.flags", "Flags", base.HEX),
    pass_on = ProtoField.bool("clearway.syn.flags.pass_on", "To be passed on", 8, nil, 0x01),
    port = ProtoField.uint16("clearway.udp_port", "UDP port"),
    reason = ProtoField.uint16("clearway.reason", "Reason", base.DEC, reasons),
    quoted_flow = ProtoField.uint64("clearway.quoted_flow", "Quoted flow", base.HEX),
    echo = ProtoField.bytes("clearway.echo", "Bytes to repeat"),
    frame = ProtoField.uint8("clearway.frame", "Frame", base.HEX, frame_types),
    padding = ProtoField.uint32("clearway.padding", "Padding bytes"),
    ack_count = ProtoField.uint8("clearway.ack.ranges", "Further ranges", base.DEC, nil, 0x7f),
    ack_capable = ProtoField.bool("clearway.ack.ecn", "Newest packet carried ECN", 8, nil, 0x80),
    ack_marked = ProtoField.uint16("clearway.ack.marked", "Packets marked as congested"),
    ack_delay = ProtoField.uint32("clearway.ack.delay", "Delay in ns"),
    ack_largest = ProtoField.uint64("clearway.ack.largest", "Largest"),
    ack_first = ProtoField.uint32("clearway.ack.first", "First range"),
    ack_gap = ProtoField.uint32("clearway.ack.gap", "Gap"),
    ack_length = ProtoField.uint32("clearway.ack.length", "Length"),
    ack_range = ProtoField.string("clearway.ack.range", "Received"),
    frame_flags = ProtoField.uint8("clearway.frame.flags", "Flags", base.HEX),
    stream = ProtoField.uint32("clearway.stream", "Stream"),
    sequence = ProtoField.uint32("clearway.sequence", "Sequence"),
    dropped = ProtoField.uint64("clearway.dropped", "Dropped packet"),
    length = ProtoField.uint32("clearway.length", "Length"),
    total = ProtoField.uint32("clearway.total", "Length of the message"),
    offset = ProtoField.uint32("clearway.offset", "Offset"),
    payload = ProtoField.bytes("clearway.payload", "Bytes"),
    message = ProtoField.bytes("clearway.message", "Message"),
    whole_in = ProtoField.framenum("clearway.message.whole_in", "Message is whole in"),
    messages = ProtoField.uint32("clearway.close.messages", "Messages sent"),
    round = ProtoField.uint16("clearway.round", "Round"),
    operation = ProtoField.uint8("clearway.operation", "Operation", base.HEX),
    number_of_operation = ProtoField.uint32("clearway.operation.number", "Number of the request"),
    status = ProtoField.uint8("clearway.operation.status", "Status", base.DEC, statuses),
    value = ProtoField.uint64("clearway.operation.value", "Value"),
    extra = ProtoField.uint64("clearway.operation.extra", "Second value"),
    stride = ProtoField.uint16("clearway.operation.stride", "Bytes of an entry"),
    region = ProtoField.uint64("clearway.operation.region", "Region", base.HEX),
    place = ProtoField.uint64("clearway.operation.offset", "Offset in the region"),
    wanted = ProtoField.uint32("clearway.operation.length", "Bytes to read"),
    count = ProtoField.uint32("clearway.operation.count", "Entries"),
    operand = ProtoField.uint64("clearway.operation.operand", "Operand", base.HEX),
    second = ProtoField.uint64("clearway.operation.second", "Second operand", base.HEX),
    connection = ProtoField.uint32("clearway.connection", "Connection"),
    from_client = ProtoField.bool("clearway.from_client", "From the client"),
    opened_in = ProtoField.framenum(
        "clearway.opened_in", "Opened in", base.NONE, frametype.REQUEST),
    accepted_in = ProtoField.framenum(
        "clearway.accepted_in", "Accepted in", base.NONE, frametype.RESPONSE),
    malformed = ProtoField.string("clearway.malformed", "Malformed"),
}
clearway.fields = f

-- Why a packet is malformed: names and sentences of `wire::Malformed`.
local malformed = {
    truncated = "The bytes end before the fixed part of the format does",
    length = "A length field says more than there are bytes, or less than the format needs",
    checksum = "The CRC does not match the bytes",
    version = "A version of the protocol that is not known here",
    type = "A type that is not known",
    field = "A field that has only one right value has another",
    frame_type = "A frame of a type that this version does not know",
    ack_range = "An acknowledgement of numbers below zero, or with an empty range or gap",
    second_ack = "A second acknowledgement in one packet",
    message_length = "A message that is longer than its packet",
    fragment_extent = "A fragment that is empty, or outside of its message, or of one too long",
    flow_id = "A flow id of zero where the sender had to choose one",
    cookie = "A cookie that is too long, or none where there has to be one",
    versions = "A list of protocol versions that is empty",
    unpadded = "A syn without a cookie that is so short that its answer could be larger",
}
local experts = {}
for name, sentence in pairs(malformed) do
    local group = name == "checksum" and expert.group.CHECKSUM or expert.group.MALFORMED
    experts[name] =
        ProtoExpert.new("clearway.malformed." .. name, sentence, group, expert.severity.ERROR)
end
-- The capture, not the sender, has left out the rest of the packet.
local CUT = "cut"
experts[CUT] = ProtoExpert.new(
    "clearway.cut", "The capture has only the beginning of this packet",
    expert.group.UNDECODED, expert.severity.NOTE)
experts.reset = ProtoExpert.new(
    "clearway.reset", "The flow is ended or refused", expert.group.SEQUENCE, expert.severity.WARN)
clearway.experts = experts

clearway.prefs.ports = Pref.range(
    "UDP ports", "20707", "What comes from or to these is Clearway's (udp_port in clearway.toml)",
    65535)
clearway.prefs.check_crc = Pref.bool("Check the CRC32C", true, "Takes most of the time")
clearway.prefs.reassemble = Pref.bool(
    "Put messages together", true, "Keeps the fragments of messages until they are whole")

local by_service_port =
    DissectorTable.new("clearway.port", "Clearway service port", ftypes.UINT16, base.DEC)

-- CRC32C ---------------------------------------------------------------------------------------

local crc_table = {}
for octet = 0, 255 do
    local crc = octet
    for _ = 1, 8 do
        local carry = bit.band(crc, 1) ~= 0
        crc = bit.rshift(crc, 1)
        if carry then crc = bit.bxor(crc, 0x82f63b78) end
    end
    crc_table[octet] = crc
end

-- Of the whole packet with its CRC field as zero.
local function crc32c(packet)
    packet = packet:sub(1, CRC_AT) .. "\0\0\0\0" .. packet:sub(CRC_AT + 5)
    local bxor, band, rshift = bit.bxor, bit.band, bit.rshift
    local crc = 0xffffffff
    for at = 1, #packet do
        crc = bxor(rshift(crc, 8), crc_table[band(bxor(crc, packet:byte(at)), 0xff)])
    end
    return bit.bnot(crc) % 0x100000000
end

-- Reading --------------------------------------------------------------------------------------

-- Ends the dissection of a packet; `dissect` catches it.
local function fail(reason)
    error({ reason = reason }, 0)
end

local function ensure(condition, reason)
    if not condition then fail(reason) end
end

-- There have to be `bytes` at `at`. If not, that is the capture's fault or, for this reason, the
-- sender's.
local function need(tvb, at, bytes, reason)
    if at + bytes <= tvb:len() then return end
    fail(at + bytes <= tvb:reported_len() and CUT or reason or "truncated")
end

-- Who talks with whom --------------------------------------------------------------------------

-- What the first pass over the packets finds out, for the passes that come later, since Wireshark
-- shows packets in any order: connections by the flow id of either side, messages that are begun
-- by flow, stream and sequence, and by packet what belongs to it.
local connections, connection_count, messages, findings

function clearway.init()
    connections, connection_count, messages, findings = {}, 0, {}, {}
end

-- The connection that the client's syn opens; its repetitions belong to the same.
local function on_syn(context, client_flow, service_port)
    if not context.is_first_look then return end
    local connection = connections[client_flow]
    if not connection then
        connection = {
            index = connection_count,
            service_port = service_port,
            opened_in = context.pinfo.number,
            client_flow = client_flow,
        }
        connection_count = connection_count + 1
        connections[client_flow] = connection
    end
    context.finding.connection = connection
    context.finding.from_client = true
end

-- The server's answers are sent to the client's flow. A syn-ack tells the server's.
local function on_answer(context, client_flow, server_flow)
    local connection = connections[client_flow]
    if not (context.is_first_look and connection) then return end
    if server_flow and not connection.accepted_in then
        connection.accepted_in = context.pinfo.number
        connections[server_flow] = connection
    end
    context.finding.connection = connection
    context.finding.from_client = false
end

-- A data packet is sent to the flow of its receiver.
local function on_data(context, flow)
    local connection = connections[flow]
    if not (context.is_first_look and connection) then return end
    context.finding.connection = connection
    context.finding.from_client = flow ~= connection.client_flow
end

local function show_connection(context)
    local connection, tree = context.finding.connection, context.tree
    if not connection then return end
    tree:add(f.connection, connection.index):set_generated()
    tree:add(f.from_client, context.finding.from_client):set_generated()
    tree:add(f.opened_in, connection.opened_in):set_generated()
    if connection.accepted_in then
        tree:add(f.accepted_in, connection.accepted_in):set_generated()
    end
end

-- Messages -------------------------------------------------------------------------------------

-- Shows a whole message, and hands it to the dissector of its service if there is one.
local function show_message(context, tree, range)
    tree:add(f.message, range)
    local connection = context.finding.connection
    if connection and range:len() > 0 then
        by_service_port:try(connection.service_port, range:tvb(), context.pinfo, context.root)
    end
end

-- Puts what has come of a message together, if nothing is missing. What is sent again may be cut
-- differently, and parts then overlap.
local function join(parts, total)
    local pieces, at = {}, 0
    while at < total do
        local part = parts[at]
        if not part then return nil end
        pieces[#pieces + 1] = part
        at = at + #part
    end
    return table.concat(pieces)
end

-- Keeps a part of a message. Parts come again: sent again, or seen at several places of a host.
local function keep_part(message, total, offset, bytes, number)
    if message.whole_in or message.parts[offset] then return end
    message.parts[offset] = bytes
    message.missing = message.missing - #bytes
    if message.missing > 0 then return end
    message.bytes = join(message.parts, total)
    if message.bytes then
        message.whole_in, message.parts = number, nil
    end
end

local function reassemble(context, tree, key, total, offset, range)
    if not (clearway.prefs.reassemble and context.is_trusted) then return end
    local number = context.pinfo.number
    if context.is_first_look then
        messages[key] = messages[key] or { parts = {}, missing = total }
        keep_part(messages[key], total, offset, range:raw(), number)
    end
    local message = messages[key]
    if not (message and message.whole_in) then return end
    tree:add(f.whole_in, message.whole_in):set_generated()
    -- The last of its parts in this packet shows it, which is the one that made it whole.
    if message.whole_in == number and not context.shown[key] then
        context.shown[key] = true
        local whole = ByteArray.new(message.bytes, true):tvb("Message")
        show_message(context, tree, whole())
        context.say("whole with %d bytes", total)
    end
end

-- Frames ---------------------------------------------------------------------------------------

-- Each takes the tree of the frame and where it starts, and returns where it ends.
local frames = {}

-- The length of the frames that have only fixed fields.
local function fixed(context, tree, at, bytes)
    need(context.tvb, at, bytes)
    tree:set_len(bytes)
    return at + bytes
end

local PADDING, PING, ACK, LIMIT, MESSAGE, FRAGMENT = 0, 1, 2, 3, 4, 5
local CLOSE, RESET, PATH, STRAY, PROBE = 6, 7, 8, 9, 10
local OPERATION, OPERATION_PART = 0x24, 0x25
local STREAM, OPEN, WAIT, SKIP = 0x30, 0x31, 0x32, 0x33

frames[PADDING] = function(context, tree, at)
    local first, past = at, context.tvb:len()
    while at < past and context.tvb(at, 1):uint() == PADDING do at = at + 1 end
    tree:set_len(at - first)
    tree:add(f.padding, context.tvb(first, at - first), at - first)
    return at
end

frames[PING] = function(context, _, at)
    context.say("ping")
    return at + 1
end

-- Numbers from `smallest` to `largest` were received.
local function show_range(context, tree, range, smallest, largest, words)
    local text = tostring(largest)
    if smallest ~= largest then text = tostring(smallest) .. "-" .. text end
    tree:add(f.ack_range, range, text)
    words[#words + 1] = text
end

frames[ACK] = function(context, tree, at)
    local tvb = context.tvb
    local past = fixed(context, tree, at, 20)
    local count = tvb(at + 1, 1):bitfield(1, 7)
    tree:add(f.ack_capable, tvb(at + 1, 1))
    tree:add(f.ack_count, tvb(at + 1, 1))
    tree:add(f.ack_marked, tvb(at + 2, 2))
    tree:add(f.ack_delay, tvb(at + 4, 4))
    tree:add(f.ack_largest, tvb(at + 8, 8))
    tree:add(f.ack_first, tvb(at + 16, 4))
    ensure(count <= ACK_RANGES_MAX, "length")
    need(tvb, past, count * 8)
    tree:set_len(20 + count * 8)
    local largest = tvb(at + 8, 8):uint64()
    local first = UInt64(tvb(at + 16, 4):uint())
    ensure(largest ~= UInt64.max() and first <= largest, "ack_range")
    local words, smallest = {}, largest - first
    show_range(context, tree, tvb(at + 8, 12), smallest, largest, words)
    for _ = 1, count do
        local gap, length = UInt64(tvb(past, 4):uint()), UInt64(tvb(past + 4, 4):uint())
        tree:add(f.ack_gap, tvb(past, 4))
        tree:add(f.ack_length, tvb(past + 4, 4))
        ensure(gap > UInt64(0) and length > UInt64(0), "ack_range")
        ensure(gap + length <= smallest, "ack_range")
        largest = smallest - gap - UInt64(1)
        smallest = smallest - gap - length
        show_range(context, tree, tvb(past, 8), smallest, largest, words)
        past = past + 8
    end
    context.say("ack %s", table.concat(words, " "))
    return past
end

frames[LIMIT] = function(context, tree, at)
    local past = fixed(context, tree, at, 16)
    tree:add(f.limit, context.tvb(at + 8, 8))
    context.say("limit %s", tostring(context.tvb(at + 8, 8):uint64()))
    return past
end

-- What message and fragment begin with.
local function show_place(context, tree, at)
    local tvb = context.tvb
    tree:add(f.frame_flags, tvb(at + 1, 1))
    tree:add(f.sequence, tvb(at + 4, 4))
    tree:add(f.length, tvb(at + 8, 4))
    return tvb(at + 4, 4):uint(), tvb(at + 8, 4):uint()
end

frames[MESSAGE] = function(context, tree, at)
    local past = fixed(context, tree, at, 12)
    local sequence, length = show_place(context, tree, at)
    need(context.tvb, past, length, "message_length")
    tree:set_len(12 + length)
    context.say("message %d (%d bytes)", sequence, length)
    show_message(context, tree, context.tvb:range(past, length))
    return past + length
end

frames[FRAGMENT] = function(context, tree, at)
    local tvb = context.tvb
    local past = fixed(context, tree, at, 20)
    local sequence, length = show_place(context, tree, at)
    local total, offset = tvb(at + 12, 4):uint(), tvb(at + 16, 4):uint()
    tree:add(f.total, tvb(at + 12, 4))
    tree:add(f.offset, tvb(at + 16, 4))
    ensure(total <= MESSAGE_BYTES_MAX and length > 0, "fragment_extent")
    ensure(offset + length <= total, "fragment_extent")
    need(tvb, past, length, "message_length")
    tree:set_len(20 + length)
    tree:add(f.payload, tvb(past, length))
    context.say("message %d, bytes %d-%d of %d", sequence, offset, offset + length - 1, total)
    -- Flow, stream, sequence.
    local key = tvb:raw(8, 8) .. context.stream .. "/" .. tvb:raw(at + 4, 4)
    reassemble(context, tree, key, total, offset, tvb(past, length))
    return past + length
end

-- The head of a request or an answer, as words. One that is too short says nothing.
local function show_operation(tree, bytes)
    local length = bytes:len()
    if length < 24 then return "too short" end
    local kind = bytes(0, 1):uint()
    local name = operations[kind % 0x80] or "operation " .. kind % 0x80
    local number = bytes(4, 4):uint()
    tree:add(f.operation, bytes(0, 1), kind)
    tree:add(f.number_of_operation, bytes(4, 4))
    if kind >= 0x80 then
        local status = bytes(1, 1):uint()
        tree:add(f.status, bytes(1, 1))
        tree:add(f.value, bytes(8, 8))
        tree:add(f.extra, bytes(16, 8))
        if length > 24 then tree:add(f.payload, bytes(24)) end
        local words = statuses[status] or "status " .. status
        return ("answer %d to %s: %s"):format(number, name, words)
    end
    if length < 48 then return "too short" end
    tree:add(f.stride, bytes(2, 2))
    tree:add(f.region, bytes(8, 8))
    tree:add(f.place, bytes(16, 8))
    tree:add(f.wanted, bytes(24, 4))
    tree:add(f.count, bytes(28, 4))
    tree:add(f.operand, bytes(32, 8))
    tree:add(f.second, bytes(40, 8))
    if length > 48 then tree:add(f.payload, bytes(48)) end
    return ("request %d, %s"):format(number, name)
end

frames[OPERATION] = function(context, tree, at)
    local past = fixed(context, tree, at, 12)
    local sequence, length = show_place(context, tree, at)
    need(context.tvb, past, length, "message_length")
    tree:set_len(12 + length)
    local words = show_operation(tree, context.tvb:range(past, length))
    context.say("operation %d (%d bytes): %s", sequence, length, words)
    return past + length
end

frames[OPERATION_PART] = function(context, tree, at)
    local tvb = context.tvb
    local past = fixed(context, tree, at, 20)
    local sequence, length = show_place(context, tree, at)
    local total, offset = tvb(at + 12, 4):uint(), tvb(at + 16, 4):uint()
    tree:add(f.total, tvb(at + 12, 4))
    tree:add(f.offset, tvb(at + 16, 4))
    ensure(total <= MESSAGE_BYTES_MAX and length > 0, "fragment_extent")
    ensure(offset + length <= total, "fragment_extent")
    need(tvb, past, length, "message_length")
    tree:set_len(20 + length)
    tree:add(f.payload, tvb(past, length))
    context.say("operation %d, bytes %d-%d of %d", sequence, offset, offset + length - 1, total)
    return past + length
end

-- Returns the words for a reason.
local function show_reason(context, tree, at)
    local reason = context.tvb(at, 2):uint()
    tree:add(f.reason, context.tvb(at, 2))
    if reason ~= 0 then tree:add_proto_expert_info(experts.reset) end
    return reasons[reason] or "reason " .. reason
end

frames[CLOSE] = function(context, tree, at)
    local past = fixed(context, tree, at, 8)
    local reason = show_reason(context, tree, at + 2)
    local count = context.tvb(at + 4, 4):uint()
    tree:add(f.messages, context.tvb(at + 4, 4))
    context.say("close after %d messages: %s", count, reason)
    return past
end

frames[RESET] = function(context, tree, at)
    local past = fixed(context, tree, at, 4)
    context.say("reset: %s", show_reason(context, tree, at + 2))
    return past
end

frames[PATH] = function(context, tree, at)
    local past = fixed(context, tree, at, 6)
    local port, round = context.tvb(at + 2, 2), context.tvb(at + 4, 2)
    tree:add(f.port, port)
    tree:add(f.round, round)
    context.say("port %d comes straight (round %d)", port:uint(), round:uint())
    return past
end

frames[STRAY] = function(context, tree, at)
    local past = fixed(context, tree, at, 4)
    tree:add(f.port, context.tvb(at + 2, 2))
    context.say("port %d comes by a detour", context.tvb(at + 2, 2):uint())
    return past
end

frames[PROBE] = function(context, tree, at)
    local past = fixed(context, tree, at, 4)
    tree:add(f.round, context.tvb(at + 2, 2))
    context.say("probe of round %d", context.tvb(at + 2, 2):uint())
    return past
end

-- What follows in the packet is of this stream.
frames[STREAM] = function(context, tree, at)
    local past = fixed(context, tree, at, 8)
    context.stream = context.tvb(at + 4, 4):uint()
    tree:add(f.stream, context.tvb(at + 4, 4))
    context.say("stream %d", context.stream)
    return past
end

frames[OPEN] = function(context, tree, at)
    local past = fixed(context, tree, at, 16)
    tree:add(f.limit, context.tvb(at + 8, 8))
    context.say("open, limit %s", tostring(context.tvb(at + 8, 8):uint64()))
    return past
end

-- There is no memory for a message.
frames[WAIT] = function(context, tree, at)
    local past = fixed(context, tree, at, 16)
    local sequence, number = context.tvb(at + 4, 4), context.tvb(at + 8, 8)
    tree:add(f.sequence, sequence)
    tree:add(f.dropped, number)
    context.say("wait with message %d, dropped in packet %s", sequence:uint(),
        tostring(number:uint64()))
    return past
end

-- A message is not sent.
frames[SKIP] = function(context, tree, at)
    local past = fixed(context, tree, at, 12)
    local sequence, length = context.tvb(at + 4, 4), context.tvb(at + 8, 4)
    tree:add(f.sequence, sequence)
    tree:add(f.total, length)
    ensure(length:uint() <= MESSAGE_BYTES_MAX, "fragment_extent")
    context.say("message %d (%d bytes) was dropped by its sender", sequence:uint(), length:uint())
    return past
end

-- Bodies ---------------------------------------------------------------------------------------

-- Each shows what follows the header of a packet of its type.
local bodies = {}

-- `count` bytes at `at`, each a version.
local function show_versions(context, at, count)
    for index = 0, count - 1 do context.tree:add(f.offered, context.tvb(at + index, 1)) end
end

local function check_flow(flow)
    ensure(flow ~= UInt64(0), "flow_id")
end

local function check_engines(engines)
    ensure(engines >= 1 and engines <= ENGINES_MAX, "field")
end

bodies[0] = function(context) -- data
    local tvb, at = context.tvb, HEADER_BYTES
    on_data(context, tvb:raw(8, 8))
    show_connection(context)
    local has_ack = false
    while at < tvb:len() do
        local octet = tvb(at, 1):uint()
        local tree = context.tree:add(f.frame, tvb(at, 1))
        ensure(frames[octet], "frame_type")
        ensure(octet ~= ACK or not has_ack, "second_ack")
        has_ack = has_ack or octet == ACK
        tree:set_text("Frame: " .. frame_types[octet])
        at = frames[octet](context, tree, at)
    end
    need(tvb, at, tvb:reported_len() - at)
end

bodies[1] = function(context) -- syn
    local tvb, tree = context.tvb, context.tree
    need(tvb, HEADER_BYTES, 24)
    local versions, cookie = tvb(34, 1):uint(), tvb(35, 1):uint()
    tree:add(f.source_flow, tvb(24, 8))
    tree:add(f.service_port, tvb(32, 2))
    tree:add(f.version_count, tvb(34, 1))
    tree:add(f.cookie_length, tvb(35, 1))
    tree:add(f.limit, tvb(36, 8))
    tree:add(f.packet_bytes_max, tvb(44, 2))
    tree:add(f.engines, tvb(46, 1))
    local flags = tree:add(f.syn_flags, tvb(47, 1))
    flags:add(f.pass_on, tvb(47, 1))
    need(tvb, 48, versions, "length")
    show_versions(context, 48, versions)
    need(tvb, 48 + versions, cookie, "length")
    if cookie > 0 then tree:add(f.cookie, tvb(48 + versions, cookie)) end
    ensure(versions > 0, "versions")
    ensure(cookie <= COOKIE_BYTES_MAX, "cookie")
    ensure(cookie > 0 or tvb:reported_len() >= SYN_BYTES_MIN, "unpadded")
    check_flow(tvb(24, 8):uint64())
    ensure(tvb(44, 2):uint() >= PACKET_BYTES_MIN, "field")
    check_engines(tvb(46, 1):uint())
    context.say("to port %d", tvb(32, 2):uint())
    if cookie > 0 then context.say("with cookie") end
    if tvb(47, 1):bitfield(7, 1) == 1 then context.say("to be passed on") end
    on_syn(context, tvb:raw(24, 8), tvb(32, 2):uint())
    show_connection(context)
end

bodies[2] = function(context) -- challenge
    local tvb, tree = context.tvb, context.tree
    need(tvb, HEADER_BYTES, 4)
    local cookie = tvb(24, 1):uint()
    tree:add(f.cookie_length, tvb(24, 1))
    tree:add(f.engines, tvb(25, 1))
    tree:add(f.port, tvb(26, 2))
    need(tvb, 28, cookie, "length")
    if cookie > 0 then tree:add(f.cookie, tvb(28, cookie)) end
    ensure(cookie > 0 and cookie <= COOKIE_BYTES_MAX, "cookie")
    check_engines(tvb(25, 1):uint())
    context.say("to what came from port %d", tvb(26, 2):uint())
    on_answer(context, tvb:raw(8, 8))
    show_connection(context)
end

bodies[3] = function(context) -- syn-ack
    local tvb, tree = context.tvb, context.tree
    need(tvb, HEADER_BYTES, 22)
    tree:add(f.source_flow, tvb(24, 8))
    tree:add(f.limit, tvb(32, 8))
    tree:add(f.packet_bytes_max, tvb(40, 2))
    tree:add(f.chosen, tvb(42, 1))
    tree:add(f.port, tvb(44, 2))
    check_flow(tvb(24, 8):uint64())
    ensure(tvb(40, 2):uint() >= PACKET_BYTES_MIN, "field")
    context.say("version %d", tvb(42, 1):uint())
    on_answer(context, tvb:raw(8, 8), tvb:raw(24, 8))
    show_connection(context)
end

bodies[4] = function(context) -- reset
    local tvb = context.tvb
    need(tvb, HEADER_BYTES, 10)
    local reason = show_reason(context, context.tree, 24)
    context.tree:add(f.quoted_flow, tvb(26, 8))
    context.say("%s", reason)
    if tvb(8, 8):uint64() ~= UInt64(0) then
        on_answer(context, tvb:raw(8, 8)) -- to a syn
    else
        on_data(context, tvb:raw(26, 8))
        -- It answers what was sent to the quoted flow, and so comes from the other side.
        if context.is_first_look and context.finding.connection then
            context.finding.from_client = not context.finding.from_client
        end
    end
    show_connection(context)
end

bodies[5] = function(context) -- version
    local tvb = context.tvb
    need(tvb, HEADER_BYTES, 1)
    local count = tvb(24, 1):uint()
    context.tree:add(f.version_count, tvb(24, 1))
    need(tvb, 25, count, "length")
    show_versions(context, 25, count)
    ensure(count > 0, "versions")
    context.say("%s", table.concat({ tvb:raw(25, count):byte(1, -1) }, " "))
    on_answer(context, tvb:raw(8, 8))
    show_connection(context)
end

bodies[6] = function(context) -- ping
    local tvb = context.tvb
    local length = tvb:len() - HEADER_BYTES
    if length > 0 then context.tree:add(f.echo, tvb(HEADER_BYTES, length)) end
    context.say("%d bytes", tvb:reported_len() - HEADER_BYTES)
end

bodies[7] = bodies[6] -- pong

-- Packets --------------------------------------------------------------------------------------

local function show_crc(context)
    local tvb = context.tvb
    local item = context.tree:add(f.crc, tvb(CRC_AT, 4))
    local status = "not checked"
    if clearway.prefs.check_crc and tvb:len() == tvb:reported_len() then
        context.is_trusted = crc32c(tvb:raw()) == tvb(CRC_AT, 4):uint()
        status = context.is_trusted and "right" or "wrong"
    end
    context.tree:add(f.crc_status, tvb(CRC_AT, 4), status):set_generated()
    -- What is wrong is shown all the same, but nothing is concluded from it.
    if not context.is_trusted then context.report("checksum", item) end
end

local function show_header(context)
    local tvb, tree = context.tvb, context.tree
    need(tvb, 0, HEADER_BYTES)
    local version, type = tvb(0, 1):uint(), tvb(1, 1):uint()
    tree:add(f.version, tvb(0, 1))
    tree:add(f.type, tvb(1, 1))
    context.words[1] = packet_types[type] or "type " .. type
    local flags = tree:add(f.flags, tvb(2, 2))
    if type == 0 then flags:add(f.ack_requested, tvb(2, 2)) end
    show_crc(context)
    tree:add(f.flow, tvb(8, 8))
    if type == 0 then
        tree:add(f.number, tvb(16, 8))
        context.words[1] = "data " .. tostring(tvb(16, 8):uint64())
    else
        tree:add(f.token, tvb(16, 8))
    end
    ensure(version == VERSION or version == VERSION_NEGOTIATION, "version")
    ensure(packet_types[type], "type")
    ensure((type == VERSION_PACKET) == (version == VERSION_NEGOTIATION), "version")
    return bodies[type]
end

-- What is known about the packet that is being shown.
local function new_context(tvb, pinfo, root)
    local context = {
        tvb = tvb,
        pinfo = pinfo,
        root = root,
        tree = root:add(clearway, tvb()),
        -- Of the info column; the first says what the packet is.
        words = {},
        -- What its next frames are of.
        stream = 0,
        -- Messages that were shown as whole.
        shown = {},
        -- Its CRC is right, or not checked.
        is_trusted = true,
    }
    function context.say(format, ...)
        context.words[#context.words + 1] = format:format(...)
    end
    function context.report(name, item)
        item:add_proto_expert_info(experts[name])
        if name ~= CUT then context.tree:add(f.malformed, name):set_generated() end
        context.say(name == CUT and "cut" or "malformed: %s", name)
    end
    return context
end

-- What the first pass has found out about a packet.
local function find(context)
    local number = context.pinfo.number
    context.is_first_look = context.is_trusted and not context.pinfo.visited
    if context.is_first_look or not findings[number] then findings[number] = {} end
    context.finding = findings[number]
end

local function show(context)
    local show_body = show_header(context)
    find(context)
    show_body(context)
end

local function info(words)
    local first = table.remove(words, 1) or "packet"
    if #words == 0 then return first end
    return first .. ": " .. table.concat(words, ", ")
end

function clearway.dissector(tvb, pinfo, root)
    pinfo.cols.protocol = "Clearway"
    local context = new_context(tvb, pinfo, root)
    local went_well, problem = pcall(show, context)
    if not went_well then
        if type(problem) ~= "table" then error(problem, 0) end
        context.words[1] = context.words[1] or "packet"
        context.report(problem.reason, context.tree)
    end
    pinfo.cols.info = info(context.words)
    return tvb:len()
end

-- On other ports: what has a version, a type and a right CRC is nothing else.
local function is_clearway(tvb)
    if tvb:len() < HEADER_BYTES or tvb:len() < tvb:reported_len() then return false end
    local version, type = tvb(0, 1):uint(), tvb(1, 1):uint()
    local expected = type == VERSION_PACKET and VERSION_NEGOTIATION or VERSION
    if version ~= expected or not packet_types[type] then return false end
    return crc32c(tvb:raw()) == tvb(CRC_AT, 4):uint()
end

clearway:register_heuristic("udp", function(tvb, pinfo, root)
    if not is_clearway(tvb) then return false end
    clearway.dissector(tvb, pinfo, root)
    return true
end)

local udp_ports = DissectorTable.get("udp.port")
local ports_in_use
local function listen()
    if ports_in_use then udp_ports:remove(ports_in_use, clearway) end
    ports_in_use = clearway.prefs.ports
    udp_ports:add(ports_in_use, clearway)
end
clearway.prefs_changed = listen
listen()

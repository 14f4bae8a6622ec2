/* How frames that are turned around on their way out (turn.c) are told from what the wire brings,
 * until hide.c has them. `TO_KERNEL` is also in `to_kernel.rs`.
 *
 * A mark that anybody else gives a packet is not one of these by accident. Who may set marks could
 * at most keep their own frames off the wire. */
#pragma once

enum { TO_KERNEL = 0xc1ea0001, FROM_KERNEL = 0xc1ea0002 };

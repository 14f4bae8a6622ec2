//! Which sockets the connections and the listeners of the stack are.

use clearway_base::SlotId;

use super::Socket;
use crate::stack::Listener;

/// Sockets by the indexes of connections, and of listeners.
#[derive(Debug, Default)]
pub(super) struct Names {
    of_connections: Vec<Option<Socket>>,
    of_listeners: Vec<Option<Socket>>,
}

impl Names {
    pub(super) fn of_connection(&self, key: SlotId) -> Option<Socket> {
        self.of_connections.get(key.slot as usize).copied().flatten()
    }

    pub(super) fn of_listener(&self, listener: Listener) -> Option<Socket> {
        self.of_listeners.get(listener.0.slot as usize).copied().flatten()
    }

    pub(super) fn set_connection(&mut self, key: SlotId, socket: Option<Socket>) {
        note(&mut self.of_connections, key, socket);
    }

    pub(super) fn set_listener(&mut self, listener: Listener, socket: Option<Socket>) {
        note(&mut self.of_listeners, listener.0, socket);
    }
}

fn note(sockets: &mut Vec<Option<Socket>>, key: SlotId, socket: Option<Socket>) {
    let index = key.slot as usize;
    if sockets.len() <= index {
        sockets.resize(index + 1, None);
    }
    sockets[index] = socket;
}

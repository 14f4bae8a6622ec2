use super::*;

/// A directory of its own for each test, removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("clearway-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a scratch directory");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn binds_makes_the_directory_and_cleans_up() {
    let scratch = Scratch::new("bind");
    let path = scratch.0.join("run/control.sock");
    let listener = Listener::bind(&path, &Policy::default()).expect("bound");
    assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
    drop(listener);
    assert!(!path.exists());
    let anybody = Policy { anybody: true, ..Policy::default() };
    let _listener = Listener::bind(&path, &anybody).expect("bound again");
    assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o666);
}

#[test]
fn stale_socket_is_replaced() {
    let scratch = Scratch::new("stale");
    let path = scratch.0.join("control.sock");
    let dead = new_socket().expect("a socket");
    bind(&dead, &SocketAddrUnix::new(&path).expect("an address")).expect("bound");
    drop(dead);
    assert!(path.exists());
    Listener::bind(&path, &Policy::default()).expect("replaced");
}

#[test]
fn socket_of_a_live_daemon_is_left_alone() {
    let scratch = Scratch::new("live");
    let path = scratch.0.join("control.sock");
    let _first = Listener::bind(&path, &Policy::default()).expect("bound");
    let error = Listener::bind(&path, &Policy::default()).expect_err("in use").to_string();
    assert!(error.contains("running") && error.contains("stop that daemon"), "{error}");
    connect(new_socket().expect("a socket"), &SocketAddrUnix::new(&path).expect("an address"))
        .expect("the first still listens");
}

/// Who may not connect to it cannot find out, and does not claim to know.
#[test]
fn socket_that_only_another_user_may_connect_to_is_left_alone() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new("others");
    let path = scratch.0.join("control.sock");
    let dead = new_socket().expect("a socket");
    bind(&dead, &SocketAddrUnix::new(&path).expect("an address")).expect("bound");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is there");
    let error = std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let nobody = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may");
            Listener::bind(&path, &Policy::default()).expect_err("not to be known").to_string()
        });
        work.join().expect("it does not panic")
    });
    assert!(error.contains("another user's") && error.contains("remove the file"), "{error}");
    assert!(path.exists());
}

/// Between `bind` and `listen`, its socket answers as that of a dead one.
#[test]
fn a_daemon_that_starts_at_the_same_time_is_left_alone() {
    let scratch = Scratch::new("starting");
    let path = scratch.0.join("control.sock");
    let lock = lock_directory(&path).expect("nobody has it");
    let first = new_socket().expect("a socket");
    bind(&first, &SocketAddrUnix::new(&path).expect("an address")).expect("bound");
    let second = std::thread::spawn({
        let path = path.clone();
        move || Listener::bind(&path, &Policy::default()).map(drop)
    });
    std::thread::sleep(Duration::from_millis(50));
    listen(&first, BACKLOG).expect("it listens");
    drop(lock);
    let error = second.join().expect("no panic").expect_err("in use").to_string();
    assert!(error.contains("running"), "{error}");
    assert!(path.exists());
}

#[test]
fn a_file_in_the_way_is_not_removed() {
    let scratch = Scratch::new("file");
    let path = scratch.0.join("control.sock");
    fs::write(&path, "precious").expect("written");
    let error = Listener::bind(&path, &Policy::default()).expect_err("in the way").to_string();
    assert!(error.contains("not a socket"), "{error}");
    assert_eq!(fs::read(&path).expect("still there"), b"precious");
}

#[test]
fn a_newer_socket_at_the_same_path_survives() {
    let scratch = Scratch::new("newer");
    let path = scratch.0.join("control.sock");
    let old = Listener::bind(&path, &Policy::default()).expect("bound");
    fs::remove_file(&path).expect("removed");
    let _new = Listener::bind(&path, &Policy::default()).expect("bound");
    drop(old);
    assert!(path.exists());
}

//! The loopback interface.

use std::os::fd::AsRawFd;

use nix::Result;
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// Brings `lo` up in the current network namespace; the kernel gives it its addresses.
pub fn loopback_up() -> Result<()> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
        .or_else(|_| socket(AddressFamily::Inet6, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None))?;
    let mut name: [libc::c_char; libc::IFNAMSIZ] = [0; libc::IFNAMSIZ];
    for (to, from) in name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    let flags = (libc::IFF_UP | libc::IFF_RUNNING | libc::IFF_LOOPBACK) as libc::c_short;
    let request =
        libc::ifreq { ifr_name: name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags } };
    // SAFETY: SIOCSIFFLAGS reads one ifreq, which outlives the call.
    Errno::result(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) })
        .map(drop)
}

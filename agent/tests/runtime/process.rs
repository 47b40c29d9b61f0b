//! The program and as whom it runs.
use crate::Test;
use crate::world::World;
pub(crate) const TESTS: &[Test] = &[("process_exit_code", exit_code)];

fn exit_code() {
    let mut world = World::new();
    world.usual_sandbox();
    let ran = world.run_spec(&world.spec("echo out; echo err >&2; exit 7")).unwrap();
    assert_eq!((ran.code, ran.out.as_str()), (7, "out\nerr\n"));
    let ran = world
        .run_spec(
            &world.spec("cat /proc/self/status /proc/self/mountinfo; ls -l /dev /proc/self/fd; id; env; pwd"),
        )
        .unwrap();
    println!("{}", ran.out);
}

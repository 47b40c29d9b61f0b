//! Composition root.
fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}

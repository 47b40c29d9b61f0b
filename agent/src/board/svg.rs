//! The machine as a picture: boxes inside boxes, a square for each CPU in the colour of its owner.

use std::fmt::Write;

use podkeep_hal::{board::Board, cpu_set::CpuId, topology::Topology};

use super::{Owners, parts, size};

const CPU_WIDTH: u32 = 34;
const CPU_HEIGHT: u32 = 22;
const GAP: u32 = 6;
const TITLE: u32 = 18;

/// Colours that are told apart on paper and by most colour-blind people; used again from the start when they run out.
const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999"];

/// A box with a title and boxes or CPUs inside, or one CPU.
enum Shape {
    Group { title: String, columns: usize, inside: Vec<Shape> },
    Cpu(CpuId),
}

impl Shape {
    fn size(&self) -> (u32, u32) {
        match self {
            Self::Cpu(_) => (CPU_WIDTH, CPU_HEIGHT),
            Self::Group { title, columns, inside } => {
                let (mut width, mut height) = (0u32, 0u32);
                for row in inside.chunks((*columns).max(1)) {
                    let sizes = row.iter().map(Self::size);
                    let (wide, high) =
                        sizes.fold((GAP, 0), |(wide, high), (w, h)| (wide + w + GAP, high.max(h)));
                    width = width.max(wide);
                    height += high + GAP;
                }
                let letters = u32::try_from(title.chars().count()).unwrap_or(0);
                let top = if title.is_empty() { GAP } else { TITLE };
                (width.max(letters * 7 + 2 * GAP), height + top)
            }
        }
    }
}

/// Draws the machine as SVG.
#[must_use]
pub fn svg(topology: &Topology, board: &Board, owners: &Owners) -> String {
    let shape = shape(topology, board);
    let (width, height) = shape.size();
    let lines = u32::try_from(owners.owned.len()).unwrap_or(0) + 3;
    let (full_width, full_height) = (width.max(360) + 2 * GAP, height + lines * TITLE + 2 * GAP);
    let mut text = String::new();
    let drawn = (|| {
        writeln!(
            text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{full_width}\" height=\"{full_height}\" \
             viewBox=\"0 0 {full_width} {full_height}\" font-family=\"sans-serif\" font-size=\"11\">"
        )?;
        writeln!(text, "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>")?;
        draw(&mut text, &shape, (GAP, GAP), 0, topology, owners)?;
        legend(&mut text, height + 2 * GAP, topology, owners)?;
        writeln!(text, "</svg>")
    })();
    debug_assert!(drawn.is_ok(), "writing to a String cannot fail");
    text
}

fn shape(topology: &Topology, board: &Board) -> Shape {
    let package = |part: super::PackagePart| Shape::Group {
        title: format!("package {}", part.package),
        columns: 2,
        inside: part.nodes.into_iter().map(|part| node(topology, part)).collect(),
    };
    let mut inside: Vec<Shape> = parts(topology).into_iter().map(package).collect();
    for node in topology.nodes.iter().filter(|node| node.cpus.is_empty()) {
        let title = format!("node {} (no CPUs) {}", node.id, size(node.memory_bytes));
        inside.push(Shape::Group { title, columns: 1, inside: Vec::new() });
    }
    let name = if board.model.is_empty() { "machine" } else { board.model.as_str() };
    let title = format!("{name}: {} CPUs, {}", topology.cpus.len(), size(topology.memory_bytes()));
    Shape::Group { title, columns: 2, inside }
}

fn node(topology: &Topology, part: super::NodePart) -> Shape {
    let memory = topology.node(part.node).map_or(0, |node| node.memory_bytes);
    let cache = |cache: super::CacheGroup| {
        let cores = cache.cores.iter().map(|core| Shape::Group {
            title: String::new(),
            columns: 1,
            inside: core.iter().map(Shape::Cpu).collect(),
        });
        let title = if cache.level > 0 { format!("L{}", cache.level) } else { "cores".into() };
        Shape::Group { title, columns: 8, inside: cores.collect() }
    };
    let columns = if part.caches.len() > 8 { 4 } else { 2 };
    let inside = part.caches.into_iter().map(cache).collect();
    Shape::Group { title: format!("node {} {}", part.node, size(memory)), columns, inside }
}

fn draw(
    text: &mut String,
    shape: &Shape,
    (x, y): (u32, u32),
    depth: usize,
    topology: &Topology,
    owners: &Owners,
) -> std::fmt::Result {
    let (width, height) = shape.size();
    match shape {
        Shape::Cpu(id) => cpu(text, *id, (x, y), topology, owners),
        Shape::Group { title, columns, inside } => {
            let fill = if depth.is_multiple_of(2) { "#f4f4f4" } else { "#ffffff" };
            writeln!(
                text,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"3\" fill=\"{fill}\" stroke=\"#888888\"/>"
            )?;
            let mut top = y + GAP;
            if !title.is_empty() {
                writeln!(text, "<text x=\"{}\" y=\"{}\">{}</text>", x + GAP, y + 13, escape(title))?;
                top = y + TITLE;
            }
            for row in inside.chunks((*columns).max(1)) {
                let mut left = x + GAP;
                let mut high = 0;
                for inner in row {
                    draw(text, inner, (left, top), depth + 1, topology, owners)?;
                    let (wide, tall) = inner.size();
                    left += wide + GAP;
                    high = high.max(tall);
                }
                top += high + GAP;
            }
            Ok(())
        }
    }
}

fn cpu(
    text: &mut String,
    id: CpuId,
    (x, y): (u32, u32),
    topology: &Topology,
    owners: &Owners,
) -> std::fmt::Result {
    let owner = owners.of(id);
    let (fill, ink, what) = match owner {
        Some(at) => {
            let name = owners.owned.get(at).map_or("", |(name, _)| name.as_str());
            (colour(at), "#ffffff", escape(name))
        }
        None if owners.reserved.contains(id) => ("#444444", "#ffffff", "kept for the system".into()),
        None if topology.isolated.contains(id) => ("#dddddd", "#000000", "kept from the scheduler".into()),
        None => ("#ffffff", "#000000", "shared".into()),
    };
    let power = topology.cpu(id).map_or(0, |cpu| cpu.capacity);
    writeln!(
        text,
        "<g><title>CPU {id}, power {power}: {what}</title><rect x=\"{x}\" y=\"{y}\" width=\"{CPU_WIDTH}\" \
         height=\"{CPU_HEIGHT}\" fill=\"{fill}\" stroke=\"#333333\"/><text x=\"{}\" y=\"{}\" fill=\"{ink}\" \
         text-anchor=\"middle\">{id}{}</text></g>",
        x + CPU_WIDTH / 2,
        y + 15,
        owner.map(Owners::sign).unwrap_or_default()
    )
}

fn legend(text: &mut String, top: u32, topology: &Topology, owners: &Owners) -> std::fmt::Result {
    let mut lines: Vec<(&str, String)> = Vec::new();
    if !owners.reserved.is_empty() {
        lines.push(("#444444", format!("kept for the system: {}", owners.reserved)));
    }
    if !topology.offline.is_empty() {
        lines.push(("none", format!("switched off: {}", topology.offline)));
    }
    for (at, (name, cpus)) in owners.owned.iter().enumerate() {
        lines.push((colour(at), format!("{} {name}: {cpus}", Owners::sign(at))));
    }
    for ((fill, line), at) in lines.iter().zip(0u32..) {
        let y = top + at * TITLE;
        writeln!(
            text,
            "<rect x=\"{GAP}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{fill}\" stroke=\"#333333\"/>"
        )?;
        writeln!(text, "<text x=\"{}\" y=\"{}\">{}</text>", GAP + 18, y + 10, escape(line))?;
    }
    Ok(())
}

fn colour(at: usize) -> &'static str {
    COLOURS.get(at % COLOURS.len()).copied().unwrap_or("#999999")
}

fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut escaped, sign| {
        match sign {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            sign => escaped.push(sign),
        }
        escaped
    })
}

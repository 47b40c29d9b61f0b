//! Which file has a name, and what stays when a file breaks.

use alloc::boxed::Box;
use alloc::vec;

use proptest::prelude::*;

use super::*;

fn pod(name: &str, uid: &str) -> Placed {
    let mut pod = Box::new(Pod::default());
    pod.metadata.name = name.into();
    pod.metadata.namespace = "default".into();
    pod.metadata.uid = uid.into();
    Placed { object: Object::Pod(pod), line: 1, document: 1 }
}

fn key(path: &str) -> FileKey {
    FileKey { source: SourceKind::File, path: path.as_bytes().to_vec() }
}

fn file(path: &str, since: i128, objects: Option<Vec<Placed>>) -> FileReport {
    let errors = match objects {
        Some(_) => Vec::new(),
        None => vec![Finding { message: "broken".into(), ..Finding::default() }],
    };
    FileReport { file: key(path), name: path.into(), objects, since, warnings: Vec::new(), errors }
}

fn update(files: Vec<FileReport>, removed: &[&str]) -> SourceUpdate {
    SourceUpdate {
        source: SourceKind::File,
        files,
        removed: removed.iter().map(|path| key(path)).collect(),
        notes: Vec::new(),
        complete: true,
    }
}

fn uid(desired: &Desired, name: &str) -> Option<String> {
    let (object, _) = desired.get(&ObjectKey::pod("default", name))?;
    Some(object.uid().into())
}

fn names(changes: &Changes) -> Vec<String> {
    changes.objects.iter().map(|key| key.name.clone()).collect()
}

#[test]
fn c_src_01_second_file_for_a_name_is_refused_now_and_after_a_restart() {
    let mut desired = Desired::default();
    desired.apply(update(vec![file("web.yaml", 5, Some(vec![pod("web", "new")]))], &[]));
    let changes =
        desired.apply(update(vec![file("copy-of-web.yaml", 9, Some(vec![pod("web", "old")]))], &[]));
    assert_eq!(names(&changes), [] as [&str; 0]);
    assert_eq!(uid(&desired, "web").unwrap(), "new");
    let status = desired.status(&key("copy-of-web.yaml")).unwrap();
    assert_eq!(
        status.errors[0].to_string(),
        "copy-of-web.yaml:1:1: metadata.name: Pod default/web is defined by web.yaml already: this one is refused (give it another name, or remove one of the files)"
    );
    assert_eq!(status.objects, []);
    // after a restart both come together: the one that runs has the name, whatever the times of the files say
    for since in [1, 9] {
        let mut again = Desired::new([(ObjectKey::pod("default", "web"), "new".into())]);
        let both = vec![
            file("copy-of-web.yaml", since, Some(vec![pod("web", "old")])),
            file("web.yaml", 5, Some(vec![pod("web", "new")])),
        ];
        again.apply(update(both, &[]));
        assert_eq!(uid(&again, "web").unwrap(), "new");
    }
    // nothing runs: the older one; of equal age the first by name
    let mut fresh = Desired::default();
    let both = vec![file("a", 9, Some(vec![pod("web", "a")])), file("b", 5, Some(vec![pod("web", "b")]))];
    fresh.apply(update(both, &[]));
    assert_eq!(uid(&fresh, "web").unwrap(), "b");
    // the next one takes over
    let changes = fresh.apply(update(vec![], &["b"]));
    assert_eq!(names(&changes), ["web"]);
    assert_eq!(uid(&fresh, "web").unwrap(), "a");
    assert!(changes.files.contains(&key("a")));
    assert_eq!(fresh.status(&key("a")).unwrap().errors, []);
}

#[test]
fn broken_file_keeps_its_last_good_objects() {
    let mut desired = Desired::default();
    desired.apply(update(vec![file("a", 1, Some(vec![pod("x", "1"), pod("y", "1")]))], &[]));
    let changes = desired.apply(update(vec![file("a", 1, None)], &[]));
    assert_eq!(names(&changes), [] as [&str; 0]);
    assert_eq!(uid(&desired, "x").unwrap(), "1");
    assert_eq!(desired.status(&key("a")).unwrap().errors.len(), 1);
    assert!(desired.may_remove(SourceKind::File, "a"));
    let changes = desired.apply(update(vec![file("a", 1, Some(vec![pod("x", "2")]))], &[]));
    assert_eq!(names(&changes), ["x", "y"]);
    assert_eq!((uid(&desired, "x").unwrap().as_str(), uid(&desired, "y")), ("2", None));
    let changes = desired.apply(update(vec![], &["a"]));
    assert_eq!(names(&changes), ["x"]);
    assert_eq!(desired.files().count(), 0);
}

#[test]
fn pods_of_a_file_that_is_broken_at_start_may_not_be_removed() {
    let mut desired = Desired::default();
    assert!(!desired.may_remove(SourceKind::File, "a"));
    desired.apply(update(vec![file("a", 1, None)], &[]));
    assert!(!desired.may_remove(SourceKind::File, "a"));
    assert!(desired.may_remove(SourceKind::File, "b"));
    assert!(!desired.may_remove(SourceKind::Http, "b"));
    desired.apply(update(vec![file("a", 1, Some(vec![]))], &[]));
    assert!(desired.may_remove(SourceKind::File, "a"));
}

#[test]
fn same_name_twice_in_one_file_is_refused() {
    let mut desired = Desired::default();
    desired.apply(update(vec![file("a", 1, Some(vec![pod("x", "1"), pod("x", "2")]))], &[]));
    assert_eq!(uid(&desired, "x").unwrap(), "1");
    let errors = desired.status(&key("a")).unwrap().errors;
    assert!(errors[0].message.contains("stands at line 1 already"), "{errors:?}");
}

#[test]
fn equal_text_changes_nothing() {
    let mut desired = Desired::default();
    desired.apply(update(vec![file("a", 1, Some(vec![pod("x", "1")]))], &[]));
    let changes = desired.apply(update(vec![file("a", 7, Some(vec![pod("x", "1")]))], &[]));
    assert_eq!(names(&changes), [] as [&str; 0]);
}

/// One step of a random history: a file gets objects, breaks, or goes.
#[derive(Clone, Debug)]
enum Step {
    Hold(u8, Vec<u8>),
    Break(u8),
    Remove(u8),
}

proptest! {
    /// Whatever happened: each name has one owner that claims it, nobody else's claim is lost, and what is wanted is
    /// what the owner holds.
    #[test]
    fn any_history_leaves_the_books_in_order(steps in prop::collection::vec(prop_oneof![
        (0u8..5, prop::collection::vec(0u8..4, 0..3)).prop_map(|(f, o)| Step::Hold(f, o)),
        (0u8..5).prop_map(Step::Break),
        (0u8..5).prop_map(Step::Remove),
    ], 0..40)) {
        let mut desired = Desired::default();
        let mut model: BTreeMap<u8, BTreeMap<u8, usize>> = BTreeMap::new();
        for (number, step) in steps.iter().enumerate() {
            let before: Vec<Option<String>> = (0..4).map(|o| uid(&desired, &format!("p{o}"))).collect();
            let changes = match step {
                Step::Hold(f, objects) => {
                    let unique: BTreeSet<u8> = objects.iter().copied().collect();
                    model.insert(*f, unique.iter().map(|o| (*o, number)).collect());
                    let placed = unique.iter().map(|o| pod(&format!("p{o}"), &format!("{f}-{number}"))).collect();
                    desired.apply(update(vec![file(&format!("f{f}"), 0, Some(placed))], &[]))
                }
                Step::Break(f) => {
                    model.entry(*f).or_default();
                    desired.apply(update(vec![file(&format!("f{f}"), 0, None)], &[]))
                }
                Step::Remove(f) => {
                    model.remove(f);
                    desired.apply(update(vec![], &[&format!("f{f}")]))
                }
            };
            for o in 0..4u8 {
                let name = format!("p{o}");
                let now = uid(&desired, &name);
                let claimants: Vec<String> = model.iter().filter_map(|(f, objects)| Some(format!("{f}-{}", objects.get(&o)?))).collect();
                prop_assert_eq!(now.is_some(), !claimants.is_empty());
                if let Some(now) = &now {
                    prop_assert!(claimants.contains(now), "{} not of {:?}", now, claimants);
                }
                let told = changes.objects.contains(&ObjectKey::pod("default", &name));
                prop_assert_eq!(told, now != before[usize::from(o)], "{} {:?}", name, step);
            }
            prop_assert_eq!(desired.files().count(), model.len());
        }
    }
}

//! Source text with bugs in it, each behind a question whether it is the one of this run.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A bug: the text of a place in a file becomes another. All ranges are of bytes.
#[derive(Clone, Debug)]
pub struct Mutant {
    pub id: usize,
    pub name: String,
    pub file: String,
    pub function: String,
    pub range: Range<usize>,
    pub replacement: String,
}

/// What a file's syntax says about where a choice can stand.
#[derive(Default)]
pub struct Places {
    expressions: Vec<(Range<usize>, Kind)>,
    constants: Vec<Range<usize>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Stands in parentheses.
    Plain,
    /// Ends a statement without a semicolon: stands in braces.
    Block,
    /// The body of a function, with its braces.
    Body,
    /// `a && let b = c` cannot be put into anything.
    Chain,
}

impl Places {
    pub fn of(text: &str) -> Self {
        let mut places = Self::default();
        places.visit_file(&syn::parse_file(text).expect("a file that compiles"));
        places
    }

    /// True if the compiler computes what is there: nothing can be chosen at run time.
    pub fn is_constant(&self, range: &Range<usize>) -> bool {
        self.constants.iter().any(|constant| contains(constant, range))
    }

    /// The smallest place around `range` that can have a choice.
    fn around(&self, range: &Range<usize>) -> Option<(Range<usize>, Kind)> {
        let around = self.expressions.iter().filter(|(place, _)| contains(place, range));
        around.min_by_key(|(place, _)| place.len()).cloned()
    }
}

fn contains(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

fn has_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

impl Visit<'_> for Places {
    fn visit_expr(&mut self, expression: &syn::Expr) {
        use syn::Expr::{Block, ForLoop, If, Let, Loop, Match, Unsafe, While};
        let kind = match expression {
            Let(_) => Kind::Chain,
            Match(_) | If(_) | Block(_) | Unsafe(_) | ForLoop(_) | While(_) | Loop(_) => {
                Kind::Block
            }
            other if has_let(other) => Kind::Chain,
            _ => Kind::Plain,
        };
        self.expressions.push((expression.span().byte_range(), kind));
        visit::visit_expr(self, expression);
    }

    fn visit_item_fn(&mut self, function: &syn::ItemFn) {
        self.expressions.push((function.block.span().byte_range(), Kind::Body));
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &syn::ImplItemFn) {
        self.expressions.push((function.block.span().byte_range(), Kind::Body));
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.expressions.push((block.span().byte_range(), Kind::Body));
        }
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_item_const(&mut self, item: &syn::ItemConst) {
        self.constants.push(item.span().byte_range());
    }

    fn visit_impl_item_const(&mut self, item: &syn::ImplItemConst) {
        self.constants.push(item.span().byte_range());
    }

    fn visit_item_static(&mut self, item: &syn::ItemStatic) {
        self.constants.push(item.span().byte_range());
    }

    fn visit_expr_const(&mut self, block: &syn::ExprConst) {
        self.constants.push(block.span().byte_range());
    }

    fn visit_expr_repeat(&mut self, array: &syn::ExprRepeat) {
        self.constants.push(array.len.span().byte_range());
        visit::visit_expr_repeat(self, array);
    }

    fn visit_type(&mut self, of: &syn::Type) {
        self.constants.push(of.span().byte_range());
    }
}

/// Where something begins and ends: what is around comes before what is in it.
type Place = (usize, Reverse<usize>);

/// The text with one bug and no choice.
pub fn alone(text: &str, mutant: &Mutant) -> String {
    with(text, 0..text.len(), mutant)
}

fn with(text: &str, place: Range<usize>, mutant: &Mutant) -> String {
    let Range { start, end } = mutant.range;
    let replacement = &mutant.replacement;
    format!("{}{replacement} {}", &text[place.start..start], &text[end..place.end])
}

/// The text with all `mutants`. Those that cannot be chosen at run time are left out and returned.
pub fn all(text: &str, mutants: &[&Mutant]) -> (String, Vec<usize>) {
    let places = Places::of(text);
    let mut left_out = Vec::new();
    let mut sites: BTreeMap<Place, (Kind, Vec<&Mutant>)> = BTreeMap::new();
    for mutant in mutants {
        match places.around(&mutant.range) {
            Some((place, kind)) if kind != Kind::Chain && !places.is_constant(&mutant.range) => {
                let key = (place.start, Reverse(place.end));
                sites.entry(key).or_insert_with(|| (kind, Vec::new())).1.push(mutant);
            }
            _ => left_out.push(mutant.id),
        }
    }
    let sites: Vec<Site> = sites
        .into_iter()
        .map(|((start, end), (kind, mutants))| Site { range: start..end.0, kind, mutants })
        .collect();
    (emit(text, 0..text.len(), &sites), left_out)
}

struct Site<'a> {
    range: Range<usize>,
    kind: Kind,
    mutants: Vec<&'a Mutant>,
}

fn emit(text: &str, within: Range<usize>, mut sites: &[Site]) -> String {
    let (mut out, mut at) = (String::new(), within.start);
    while let [site, rest @ ..] = sites {
        let inner = rest.iter().take_while(|other| other.range.start < site.range.end).count();
        out += &text[at..site.range.start];
        out += &choice(text, site, &emit(text, site.range.clone(), &rest[..inner]));
        at = site.range.end;
        sites = &rest[inner..];
    }
    out + &text[at..within.end]
}

/// What is there without a bug comes first, for it to say which type the others have to have.
fn choice(text: &str, site: &Site, original: &str) -> String {
    let ids: Vec<String> = site.mutants.iter().map(|mutant| mutant.id.to_string()).collect();
    let mut out = format!("if crate::mutant::none(&[{}]) {{ {original} }}", ids.join(", "));
    for (i, mutant) in site.mutants.iter().enumerate() {
        let question = format!("if crate::mutant::is({})", mutant.id);
        let question = if i + 1 == site.mutants.len() { "" } else { &question };
        let planted = with(text, site.range.clone(), mutant);
        out +=
            &format!(" else {question} {{ {} {planted} {} }}", begins(mutant.id), ends(mutant.id));
    }
    match site.kind {
        Kind::Plain => format!("({out})"),
        _ => format!("{{ {out} }}"),
    }
}

/// Marks by which errors of the compiler are brought back to their bugs.
pub fn begins(id: usize) -> String {
    format!("/*begin {id}*/")
}

pub fn ends(id: usize) -> String {
    format!("/*end {id}*/")
}

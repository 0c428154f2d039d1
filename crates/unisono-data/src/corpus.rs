//! The built-in corpus: simple stories from a small grammar, the same bytes on every machine.
//!
//! A story has a cast (a hero, a friend, a thing, two places, a few counted foods) that stays the same to its end, with
//! pronouns that agree and numbers that add up. So what comes next depends on names and words tens to hundreds of
//! characters back: more than a character trigram can know, and little enough for a small model to learn in minutes.

mod plots;
mod words;

use plots::{ENDING, OPENING, PLOTS};
use unisono_kernels::philox::philox4x32;
use words::*;

/// Stories are added until the corpus has at least this many bytes.
const TARGET_BYTES: usize = 1_200_000;
/// The seed that makes the corpus what it is. A change of it, of the words or of the plots is another corpus.
const KEY: [u32; 2] = [0x756e_6973, 0x6f6e_6f31];

/// The corpus: some 1.2 MB of ASCII. A story is three lines (beginning, plot, end); a blank line follows each story.
pub fn stories() -> String {
    let mut text = String::with_capacity(TARGET_BYTES + 4096);
    let mut index = 0;
    while text.len() < TARGET_BYTES {
        story(index, &mut text);
        index += 1;
    }
    text
}

/// Appends story number `index`, a pure function of its number.
fn story(index: u32, text: &mut String) {
    let mut draws = Draws { story: index, next: 0 };
    let cast = Cast::draw(&mut draws);
    let plot = PLOTS[draws.below(PLOTS.len())];
    for paragraph in [OPENING, plot, ENDING] {
        for (i, beat) in paragraph.iter().enumerate() {
            if i > 0 {
                text.push(' ');
            }
            cast.tell(beat, &mut draws, text);
        }
        text.push('\n');
    }
    text.push('\n');
}

/// The random draws of one story.
struct Draws {
    story: u32,
    next: u32,
}

impl Draws {
    /// A number below `n`, which must not be 0.
    fn below(&mut self, n: usize) -> usize {
        let [word, ..] = philox4x32([self.next, self.story, 0, 0], KEY);
        self.next += 1;
        ((u64::from(word) * n as u64) >> 32) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Somebody in a story.
struct Person {
    name: &'static str,
    kind: &'static str,
    temper: &'static str,
    female: bool,
}

impl Person {
    fn draw(draws: &mut Draws) -> Self {
        let female = draws.below(2) == 0;
        Self {
            name: if female { draws.pick(&GIRLS) } else { draws.pick(&BOYS) },
            kind: draws.pick(&KINDS),
            temper: draws.pick(&TRAITS),
            female,
        }
    }
}

/// Everything that stays the same within a story.
struct Cast {
    hero: Person,
    friend: Person,
    elder: &'static str,
    thing: &'static str,
    color: &'static str,
    home: (&'static str, &'static str),
    place: (&'static str, &'static str),
    food: (&'static str, &'static str),
    /// How many foods there are and how many of them go away.
    counts: (usize, usize),
    feeling: &'static str,
    skill: &'static str,
    time: &'static str,
    weather: &'static str,
}

impl Cast {
    fn draw(draws: &mut Draws) -> Self {
        let hero = Person::draw(draws);
        let mut friend = Person::draw(draws);
        while friend.name == hero.name || friend.kind == hero.kind {
            friend = Person::draw(draws);
        }
        let home = (draws.pick(&PLACE_ADJECTIVES), draws.pick(&PLACES));
        let mut place = (draws.pick(&PLACE_ADJECTIVES), draws.pick(&PLACES));
        while place.1 == home.1 {
            place = (draws.pick(&PLACE_ADJECTIVES), draws.pick(&PLACES));
        }
        let total = 4 + draws.below(NUMBERS.len() - 4);
        Self {
            hero,
            friend,
            elder: draws.pick(&ELDERS),
            thing: draws.pick(&THINGS),
            color: draws.pick(&COLORS),
            home,
            place,
            food: draws.pick(&FOODS),
            // At least two go and at least two stay, so that nouns and verbs are plural.
            counts: (total, 2 + draws.below(total - 3)),
            feeling: draws.pick(&FEELINGS),
            skill: draws.pick(&SKILLS),
            time: draws.pick(&TIMES),
            weather: draws.pick(&WEATHERS),
        }
    }

    /// Appends one wording of a beat with the names filled in.
    fn tell(&self, beat: &[&str], draws: &mut Draws, text: &mut String) {
        let mut rest = draws.pick(beat);
        while let Some((before, after)) = rest.split_once('{') {
            text.push_str(before);
            let (key, after) = after
                .split_once('}')
                .expect("bug in unisono: a wording has an open brace");
            self.fill(key, text);
            rest = after;
        }
        text.push_str(rest);
    }

    /// Appends the value of a key: `name`, `Name` (capital) or `a name` (with its article).
    fn fill(&self, key: &str, text: &mut String) {
        let (article, key) = match key.strip_prefix("a ") {
            Some(key) => (true, key),
            None => (false, key),
        };
        let start = text.len();
        let capital = key.starts_with(|c: char| c.is_ascii_uppercase());
        self.value(&key.to_ascii_lowercase(), text);
        if article {
            let vowel = text[start..].starts_with(['a', 'e', 'i', 'o', 'u']);
            text.insert_str(start, if vowel { "an " } else { "a " });
        }
        if capital && let Some(first) = text.get_mut(start..start + 1) {
            first.make_ascii_uppercase();
        }
    }

    fn value(&self, key: &str, text: &mut String) {
        let she = |person: &Person, female, male| if person.female { female } else { male };
        let word = match key {
            "name" => self.hero.name,
            "kind" => self.hero.kind,
            "trait" => self.hero.temper,
            "he" => she(&self.hero, "she", "he"),
            "him" => she(&self.hero, "her", "him"),
            "his" => she(&self.hero, "her", "his"),
            "friend" => self.friend.name,
            "fkind" => self.friend.kind,
            "ftrait" => self.friend.temper,
            "fhe" => she(&self.friend, "she", "he"),
            "fhim" => she(&self.friend, "her", "him"),
            "fhis" => she(&self.friend, "her", "his"),
            "elder" => self.elder,
            "thing" => self.thing,
            "color" => self.color,
            "home" | "place" => {
                let (adjective, noun) = if key == "home" { self.home } else { self.place };
                text.push_str(adjective);
                text.push(' ');
                noun
            }
            "food" => self.food.0,
            "foods" => self.food.1,
            "n" => NUMBERS[self.counts.0],
            "m" => NUMBERS[self.counts.1],
            "rest" => NUMBERS[self.counts.0 - self.counts.1],
            "feeling" => self.feeling,
            "skill" => self.skill,
            "time" => self.time,
            "weather" => self.weather,
            _ => unreachable!("bug in unisono: the corpus grammar has no word {key:?}"),
        };
        text.push_str(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wording_of_every_plot_can_be_told() {
        let cast = Cast::draw(&mut Draws { story: 0, next: 0 });
        for beat in PLOTS.iter().copied().chain([OPENING, ENDING]).flatten() {
            for wording in beat.iter() {
                let mut text = String::new();
                cast.tell(&[wording], &mut Draws { story: 0, next: 0 }, &mut text);
                assert!(
                    text.ends_with(['.', '!', '?', '"']) && !text.contains(['{', '}']),
                    "{text}"
                );
                assert!(text.starts_with(|c: char| c.is_ascii_uppercase() || c == '"'), "{text}");
            }
        }
    }

    #[test]
    fn pronouns_and_articles_agree() {
        let text = stories();
        for vowel in ["a", "e", "i", "o", "u"] {
            assert!(!text.contains(&format!(" a {vowel}")), "a before {vowel}");
        }
        let mut checked = [0, 0];
        for story in text.split("\n\n") {
            let names = |names: &[&str]| {
                story
                    .split(|c: char| !c.is_ascii_alphabetic())
                    .any(|word| names.contains(&word))
            };
            let has = |words: &[&str]| {
                story
                    .to_lowercase()
                    .split(|c: char| !c.is_ascii_alphabetic())
                    .any(|word| words.contains(&word))
            };
            match (names(&GIRLS), names(&BOYS)) {
                (true, false) => assert!(!has(&["he", "him", "his"]), "{story}"),
                (false, true) => assert!(!has(&["she", "her"]), "{story}"),
                _ => continue,
            }
            checked[usize::from(names(&BOYS))] += 1;
        }
        assert!(checked.iter().all(|count| *count > 200), "{checked:?}");
    }

    #[test]
    fn counted_foods_add_up() {
        let number = |word: &str| NUMBERS.iter().position(|number| *number == word);
        let mut checked = 0;
        for story in stories().split("\n\n") {
            // "Now Zoe had four and Ned had two." after "found six nuts" or "gave Zoe six nuts"; "One day" counts nothing.
            let Some((before, after)) = story.split_once("Now ") else {
                continue;
            };
            let numbers = |text: &str| -> Vec<usize> {
                text.split(|c: char| !c.is_ascii_alphabetic())
                    .filter_map(number)
                    .filter(|n| *n > 1)
                    .collect()
            };
            let after = numbers(after.split('.').next().unwrap_or(""));
            let before = numbers(before);
            if let ([total, ..], [rest, given]) = (&before[..], &after[..]) {
                assert_eq!(*total, rest + given, "{story}");
                checked += 1;
            }
        }
        assert!(checked > 20, "{checked}");
    }
}
